//! JSON schemas of the newtypes, and functions that complete the schemas of larger types.
//!
//! Every schema of a text has a `pattern` and a `maxLength`, so that an API server refuses invalid text. Its `title` selects
//! the type in [`crate::read`], which then reports why a text is invalid.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::addresses::{CaBundle, DnsName, Endpoint, HttpUrl, LoginName, NoProxy, PortRange, Registry};
use crate::kubernetes_cluster::{FeatureGates, TimeoutMins};
use crate::labels::{LabelKey, LabelValue};
use crate::names::{Cidr, ClusterName, Digest, HostAddress, HostName, Version};
use crate::secret::{PrivateKey, Secret};

const LABEL: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
/// Labels joined by dots. The last label contains a letter, so that `300.1.1.1` is not a name.
const NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*([0-9][-0-9]*)?[a-z]([-a-z0-9]*[a-z0-9])?$";
const OCTET: &str = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

macro_rules! text_schema {
    ($($name:ident, $title:literal, $max:literal, $pattern:expr;)*) => {$(
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let pattern: String = $pattern.into();
                json_schema!({"type": "string", "title": $title, "maxLength": $max, "pattern": pattern})
            }
        }
    )*};
}

text_schema! {
    ClusterName, "cluster name", 63, LABEL;
    HostName, "host name", 63, LABEL;
    Digest, "SHA-256 digest", 71, "^(sha256:)?[0-9a-f]{64}$";
    HostAddress, "IPv4 address", 15, format!(r"^{OCTET}(\.{OCTET}){{3}}$");
    Cidr, "IPv4 network", 18, format!(r"^{OCTET}(\.{OCTET}){{3}}/(3[0-2]|[12]?[0-9])$");
    Version, "Kubernetes version", 18, r"^v?[0-9]{1,5}\.[0-9]{1,5}\.[0-9]{1,5}$";
    DnsName, "DNS name", 253, NAME;
    Endpoint, "address or DNS name", 253, format!(r"^{OCTET}(\.{OCTET}){{3}}$|{NAME}");
    Registry, "image registry", 255, r"^[a-z0-9][-a-z0-9.]*(:[0-9]{1,5})?(/[a-z0-9]([-._a-z0-9]*[a-z0-9])?)*$";
    HttpUrl, "URL", 255, "^https?://[a-z0-9][-a-z0-9.]*(:[0-9]{1,5})?(/[A-Za-z0-9/._~-]*)?$";
    NoProxy, "address, network or DNS name", 255, r"^\.?[a-z0-9][-a-z0-9./]*$";
    CaBundle, "certificates as PEM", 262144, "-----BEGIN CERTIFICATE-----";
    LoginName, "account name", 32, "^[a-z_][-a-z0-9_]*$";
    PortRange, "port range", 11, "^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$";
    LabelKey, "label key", 317, r"^([-a-z0-9.]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
    LabelValue, "label value", 63, "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
    FeatureGates, "feature gates", 1024, r"^[A-Z][A-Za-z0-9]*=(true|false)(,[A-Z][A-Za-z0-9]*=(true|false))*$";
    PrivateKey, "private SSH key", 32768, r"^\s*(-----BEGIN |LS0tLS1CRUdJTi)";
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "title": "secret", "maxLength": 1024})
    }
}

/// Why the type refuses a text; `None` when it accepts the text. `title` is the title of the schema. The types check more
/// than a schema can express.
pub(crate) fn refusal(title: &str, text: &str) -> Option<String> {
    fn of<T: std::str::FromStr<Err: ToString>>(text: &str) -> Option<String> {
        text.parse::<T>().err().map(|error| error.to_string())
    }
    match title {
        "cluster name" => of::<ClusterName>(text),
        "host name" => of::<HostName>(text),
        "SHA-256 digest" => of::<Digest>(text),
        "IPv4 address" => of::<HostAddress>(text),
        "IPv4 network" => of::<Cidr>(text),
        "Kubernetes version" => of::<Version>(text),
        "DNS name" => of::<DnsName>(text),
        "address or DNS name" => of::<Endpoint>(text),
        "image registry" => of::<Registry>(text),
        "URL" => of::<HttpUrl>(text),
        "address, network or DNS name" => of::<NoProxy>(text),
        "certificates as PEM" => of::<CaBundle>(text),
        "account name" => of::<LoginName>(text),
        "port range" => of::<PortRange>(text),
        "label key" => of::<LabelKey>(text),
        "label value" => of::<LabelValue>(text),
        "feature gates" => of::<FeatureGates>(text),
        "private SSH key" => of::<PrivateKey>(text),
        "minutes" => of::<TimeoutMins>(text),
        _ => None,
    }
}

/// Prefix of the pattern of a text that may be empty; an empty text means that the field is absent.
pub(crate) const MAY_BE_EMPTY: &str = "^$|";

/// The schema of `T`, or an empty text: older clients write `""` for absent fields.
pub(crate) fn or_empty<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        let widened = format!("{MAY_BE_EMPTY}{pattern}");
        schema.insert("pattern".to_owned(), widened.into());
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.insert(0, json!(""));
    }
    schema
}

/// Adds the deprecated property `alias` for the property `name`. An API server drops fields that are not in its schema.
pub(crate) fn add_alias(schema: &mut Schema, alias: &str, name: &str) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    if let Some(mut copy) = properties.get(name).cloned() {
        deprecate(&mut copy, name);
        properties.insert(alias.to_owned(), copy);
    }
}

const OLDER: &str = "Older spelling of ";

/// Marks a property as the older spelling of `instead`.
pub(crate) fn deprecate(property: &mut Value, instead: &str) {
    if let Value::Object(fields) = property {
        fields.insert("description".into(), json!(format!("{OLDER}{instead}")));
        fields.insert("deprecated".into(), json!(true));
    }
}

/// The newer spelling of a deprecated property.
pub(crate) fn newer_spelling(property: &Value) -> Option<&str> {
    property.get("deprecated")?;
    property.get("description")?.as_str()?.strip_prefix(OLDER)
}

/// Removes `null` from every type, and formats that API servers do not know. An API server then drops a `null` like an absent
/// field, and no rule has to handle `null`.
pub(crate) fn never_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                fields.remove("format");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(values)) = fields.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            fields.values_mut().for_each(never_null);
        }
        Value::Array(items) => items.iter_mut().for_each(never_null),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern may accept more than its type, which checks again; it must not refuse valid input.
    #[test]
    fn patterns_accept_every_valid_value() {
        let mut generator = SchemaGenerator::default();
        let mut accepts = |schema: fn(&mut SchemaGenerator) -> Schema, texts: &[&str]| {
            let schema = schema(&mut generator);
            let title = schema.get("title").and_then(Value::as_str).unwrap().to_owned();
            let pattern = regex::Regex::new(schema.get("pattern").and_then(Value::as_str).unwrap()).unwrap();
            for text in texts {
                assert!(pattern.is_match(text), "{title}: {text}");
                assert_eq!(refusal(&title, text), None);
            }
        };
        accepts(ClusterName::json_schema, &["a", "demo-1", &"x".repeat(63)]);
        accepts(HostAddress::json_schema, &["0.0.0.0", "10.0.0.1", "255.255.255.255", "100.64.99.200"]);
        accepts(Cidr::json_schema, &["10.64.0.0/12", "0.0.0.0/0", "192.168.1.0/30"]);
        accepts(Version::json_schema, &["v1.36.3", "1.9.0"]);
        accepts(Endpoint::json_schema, &["10.0.0.1", "api.prod.example.com", "x"]);
        accepts(DnsName::json_schema, &["apiserver.cluster.local", "a-1"]);
        accepts(Registry::json_schema, &["registry.k8s.io", "10.0.0.1:5000/a/b_c.d"]);
        accepts(LoginName::json_schema, &["root", "_x", "a-b_9"]);
        accepts(PortRange::json_schema, &["1-65535", "10000-30000"]);
        accepts(LabelKey::json_schema, &["a", "example.com/A_b.c", "node-role.kubernetes.io/edge"]);
        accepts(LabelValue::json_schema, &["", "ssd", "A_b.c-1"]);
        accepts(FeatureGates::json_schema, &["A=true", "AllAlpha=false,B2=true"]);
        accepts(Digest::json_schema, &[&"0".repeat(64), &format!("sha256:{}", "f".repeat(64))]);
    }

    #[test]
    fn patterns_refuse_dangerous_values() {
        let mut generator = SchemaGenerator::default();
        let mut refuses = |schema: fn(&mut SchemaGenerator) -> Schema, texts: &[&str]| {
            let schema = schema(&mut generator);
            let pattern = regex::Regex::new(schema.get("pattern").and_then(Value::as_str).unwrap()).unwrap();
            for text in texts {
                assert!(!pattern.is_match(text), "{text}");
            }
        };
        refuses(HostAddress::json_schema, &["300.1.1.1", "1.2.3", "01.2.3.4", "::1", "10.0.0.1\nx", ""]);
        refuses(Endpoint::json_schema, &["$(id)", "a;b", "", "A", "300.1.1.1"]);
        refuses(or_empty::<Endpoint>, &["$(id)", " "]);
        refuses(LoginName::json_schema, &["-o", "a b", "Root"]);
    }

    #[test]
    fn an_optional_text_may_be_empty() {
        let schema = or_empty::<Cidr>(&mut SchemaGenerator::default());
        let pattern = regex::Regex::new(schema.get("pattern").and_then(Value::as_str).unwrap()).unwrap();
        assert!(pattern.is_match("") && pattern.is_match("10.0.0.0/8") && !pattern.is_match("10.0.0.0"));
    }
}
