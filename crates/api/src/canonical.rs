//! One text for equal values, for digests and names. It does not change when a later version of a type has more fields.

use std::collections::BTreeMap;

use serde_json::Value;

/// The JSON text of a value with its keys in order, without fields that are `null`, `false`, an empty list or an empty object:
/// that is how an absent field is written by some clients, and by later versions of a type. Entries of lists are not removed,
/// because their order counts, and neither are empty texts, because a label may have one.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let given = fields.iter().filter(|(_, value)| !is_unset(value));
            let sorted: BTreeMap<&str, String> =
                given.map(|(key, value)| (key.as_str(), canonical_json(value))).collect();
            let members = sorted.into_iter().map(|(key, value)| format!("{}:{value}", Value::from(key)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical_json).collect::<Vec<_>>().join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Whether the value of a field is the same as an absent field.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_unset),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_not_set_do_not_count() {
        let given = json!({"b": {"y": 1, "x": [true, false, null, {}]}, "a": "\"quoted\""});
        let text = r#"{"a":"\"quoted\"","b":{"x":[true,false,null,{}],"y":1}}"#;
        assert_eq!(canonical_json(&given), text);
        assert_eq!(canonical_json(&serde_json::from_str(text).unwrap()), text, "it is JSON");
        let mut more = given.clone();
        for (field, unset) in
            [("c", json!(null)), ("d", json!(false)), ("e", json!([])), ("f", json!({"g": {}, "h": null}))]
        {
            more[field] = unset.clone();
            more["b"][field] = unset;
        }
        assert_eq!(canonical_json(&more), text);
        assert_eq!(canonical_json(&json!({})), "{}");
    }

    #[test]
    fn fields_that_are_set_count() {
        let text = canonical_json(&json!({"labels": {"a": "", "b": 0}, "list": [1, 2]}));
        for other in [
            json!({"labels": {"a": ""}, "list": [1, 2]}),
            json!({"labels": {"b": 0}, "list": [1, 2]}),
            json!({"labels": {"a": "", "b": 0}, "list": [2, 1]}),
            json!({"labels": {"a": "", "b": 0}, "list": [1, 2, null]}),
        ] {
            assert_ne!(canonical_json(&other), text, "{other}");
        }
    }
}
