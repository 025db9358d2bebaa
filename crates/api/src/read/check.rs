//! Validates a document against the schema.

use serde_json::Value;

use super::mistake::Mistake;
use crate::schema::{MAY_BE_EMPTY, newer_spelling, refusal};
use crate::suggestion;
use crate::yaml::{TextPosition, YamlField, YamlNode, YamlValue, join};

/// Every mistake of the document, in the order of the file.
pub(super) fn all(document: &YamlNode, schema: &Value) -> Vec<Mistake> {
    let mut check = Check { mistakes: Vec::new() };
    check.value("", document, schema);
    check.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    check.mistakes
}

struct Check {
    mistakes: Vec<Mistake>,
}

impl Check {
    fn report(&mut self, place: TextPosition, field: &str, reason: String) {
        let TextPosition { line, column } = place;
        self.mistakes.push(Mistake { line, column, field: field.to_owned(), reason });
    }

    fn value(&mut self, path: &str, tree: &YamlNode, schema: &Value) {
        if !takes(schema, &tree.value) {
            self.report(tree.place, path, wrong_kind(schema, &tree.value));
            return;
        }
        match &tree.value {
            YamlValue::Map(fields) => self.map(path, tree.place, fields, schema),
            YamlValue::List(items) => self.list(path, tree.place, items, schema),
            YamlValue::Text(text) => self.text(path, tree.place, text, schema),
            YamlValue::Integer(number) => self.number(path, tree.place, *number, schema),
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Fraction(_) => {}
        }
    }

    fn map(&mut self, path: &str, place: TextPosition, fields: &[YamlField], schema: &Value) {
        let known = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        let keys = schema.pointer("/propertyNames/title").and_then(Value::as_str);
        for YamlField { name, place: at, node } in fields {
            let inner = join(path, name);
            if let Some(reason) = keys.and_then(|title| refusal(title, name)) {
                self.report(*at, &inner, format!("is wrong: {reason}"));
            }
            match known.and_then(|known| known.get(name)).or(others) {
                Some(_) if matches!(node.value, YamlValue::Null) => {}
                Some(schema) => {
                    let newer = newer_spelling(schema);
                    if let Some(newer) = newer.filter(|newer| fields.iter().any(|other| other.name == *newer))
                    {
                        self.report(
                            *at,
                            &inner,
                            format!("is an older spelling of {newer}, which is also set; remove {name}"),
                        );
                    }
                    self.value(&inner, node, schema);
                }
                None if schema.get("additionalProperties") != Some(&Value::Bool(false)) => {}
                None => self.report(*at, &inner, unknown(name, schema)),
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            let given =
                |field: &YamlField| field.name == name && !matches!(field.node.value, YamlValue::Null);
            if !fields.iter().any(given) {
                self.report(place, &join(path, name), "is missing".to_owned());
            }
        }
    }

    fn list(&mut self, path: &str, place: TextPosition, items: &[YamlNode], schema: &Value) {
        let most = schema.get("maxItems").and_then(Value::as_u64);
        if let Some(most) = most.filter(|most| items.len() as u64 > *most) {
            self.report(place, path, format!("has {} entries; at most {most} are allowed", items.len()));
        }
        if let Some(schema) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.value(&format!("{path}[{index}]"), item, schema);
            }
        }
    }

    fn text(&mut self, path: &str, place: TextPosition, text: &str, schema: &Value) {
        let get = |name| schema.get(name).and_then(Value::as_str);
        if text.is_empty() && get("pattern").is_some_and(|pattern| pattern.starts_with(MAY_BE_EMPTY)) {
            return;
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let words = || values.iter().filter_map(Value::as_str).filter(|word| !word.is_empty());
            if !values.iter().any(|value| value.as_str() == Some(text)) {
                let list = words().collect::<Vec<_>>().join(", ");
                let meant = closest(text, words()).map(|word| format!("; did you mean {word}?"));
                self.report(
                    place,
                    path,
                    format!("is {text:?}, but must be one of {list}{}", meant.unwrap_or_default()),
                );
            }
        }
        if let Some(reason) = get("title").and_then(|title| refusal(title, text)) {
            self.report(place, path, format!("is wrong: {reason}"));
        }
        let most = schema.get("maxLength").and_then(Value::as_u64);
        if let Some(most) = most.filter(|most| text.chars().count() as u64 > *most) {
            self.report(place, path, format!("is too long; at most {most} characters are allowed"));
        }
    }

    fn number(&mut self, path: &str, place: TextPosition, number: i128, schema: &Value) {
        let bound = |name| schema.get(name).and_then(Value::as_f64);
        let (least, most) = (bound("minimum"), bound("maximum"));
        let outside = least.is_some_and(|least| (number as f64) < least)
            || most.is_some_and(|most| number as f64 > most);
        if outside {
            let range = match (least, most) {
                (Some(least), Some(most)) => format!("{least} to {most}"),
                (Some(least), None) => format!("at least {least}"),
                (_, most) => format!("at most {}", most.unwrap_or_default()),
            };
            self.report(place, path, format!("is {number}, which is out of range: {range}"));
        }
    }
}

/// The known word that a user may have meant: at most a third of its characters (1 to 4) differ.
fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    suggestion::closest(word, (word.chars().count() / 3).clamp(1, 4), known)
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(only)) => vec![only],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn takes(schema: &Value, kind: &YamlValue) -> bool {
    let types = types(schema);
    types.is_empty()
        || types.iter().any(|name| match kind {
            YamlValue::Null => *name == "null",
            YamlValue::Bool(_) => *name == "boolean",
            YamlValue::Integer(_) => *name == "integer" || *name == "number",
            YamlValue::Fraction(_) => *name == "number",
            YamlValue::Text(_) => *name == "string",
            YamlValue::List(_) => *name == "array",
            YamlValue::Map(_) => *name == "object",
        })
}

fn wrong_kind(schema: &Value, kind: &YamlValue) -> String {
    let wanted = types(schema).first().map_or("something else", |name| match *name {
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a mapping",
        other => other,
    });
    let hint = match (wanted, kind) {
        ("text", YamlValue::Bool(_) | YamlValue::Integer(_) | YamlValue::Fraction(_)) => "; put it in quotes",
        ("a list", _) => "; begin each entry with '- '",
        _ => "",
    };
    format!("must be {wanted}, not {}{hint}", kind.kind_name())
}

fn unknown(name: &str, schema: &Value) -> String {
    let known = schema.get("properties").and_then(Value::as_object);
    let current = || {
        let fields = known.into_iter().flatten();
        fields.filter(|(_, field)| field.get("deprecated").is_none()).map(|(name, _)| name.as_str())
    };
    if let Some(meant) = closest(name, current()) {
        return format!("is not a field; did you mean {meant}?");
    }
    let names = current().collect::<Vec<_>>();
    if names.is_empty() {
        return "is not a field; no field is allowed here".to_owned();
    }
    format!("is not a field; known here: {}", names.join(", "))
}
