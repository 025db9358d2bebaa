//! YAML values with their line numbers; scalars keep their text.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::mistake::{InventoryFile, InventoryMistake};

/// A value and its line, from 1.
#[derive(Clone)]
pub(crate) struct YamlNode {
    pub(crate) line: u64,
    pub(crate) value: Value,
}

/// A YAML value. No `Debug`: it may be a password.
#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<Field>),
}

/// One entry of a mapping.
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) line: u64,
    pub(crate) tree: YamlNode,
}

impl YamlNode {
    /// The fields of a mapping; none for an empty value. `Err` with the kind of any other value.
    pub(crate) fn fields(&self) -> Result<&[Field], &'static str> {
        match &self.value {
            Value::Map(fields) => Ok(fields),
            Value::Null => Ok(&[]),
            other => Err(other.name()),
        }
    }

    /// A field of a mapping.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.fields().ok()?.iter().find(|field| field.name == name).map(|field| &field.tree)
    }
}

impl Value {
    /// The kind's name in a sentence, with its article.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// A scalar as it is written; `None` for nothing, lists and mappings.
    pub(crate) fn scalar(&self) -> Option<String> {
        match self {
            Self::Bool(yes) => Some(yes.to_string()),
            Self::Number(text) | Self::Text(text) => Some(text.clone()),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }

    /// Whether Ansible treats it as true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Bool(yes) => *yes,
            Self::Number(text) => text != "0",
            Self::Text(text) => {
                ["true", "yes", "on", "y", "t", "1"].contains(&text.to_ascii_lowercase().as_str())
            }
            Self::List(items) => !items.is_empty(),
            Self::Map(_) | Self::Null => false,
        }
    }
}

/// Reads the only document of a text. Adds mistakes to `found`.
pub(crate) fn read(text: &str, file: InventoryFile, found: &mut Vec<InventoryMistake>) -> Option<YamlNode> {
    let options = serde_saphyr::options! { with_snippet: false, emit_comments: false };
    let mut report =
        |line, reason: String| found.push(InventoryMistake { file, line, subject: String::new(), reason });
    match serde_saphyr::from_multiple_with_options::<YamlNode>(text, options) {
        Ok(documents) => {
            let mut written = documents.into_iter().filter(|tree| !matches!(tree.value, Value::Null));
            let first = written.next();
            if let Some(second) = written.next() {
                report(second.line, "begins a second document; keep one in the file".to_owned());
            }
            Some(first.unwrap_or(YamlNode { line: 1, value: Value::Null }))
        }
        Err(error) => {
            let line = error.location().map_or(1, |at| at.line().max(1));
            report(line, explain(&error, text, file));
            None
        }
    }
}

fn explain(error: &serde_saphyr::Error, text: &str, file: InventoryFile) -> String {
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error.without_snippet() {
        return format!("gives {key} twice; keep one");
    }
    let section = |line: &str| line.starts_with('[') && line.trim_end().ends_with(']');
    if file == InventoryFile::Hosts && text.lines().any(section) {
        return "is not YAML but looks like INI: ansible-inventory -i hosts.ini --list --yaml writes it as YAML"
            .to_owned();
    }
    let reason = error.without_snippet().to_string();
    let reason = reason.lines().next().unwrap_or_default().split(" at line ").next().unwrap_or_default();
    format!("is not YAML: {}", reason.trim_end_matches([':', ',', ' ']))
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line().max(1), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let line = key.referenced.line().max(1);
            fields.push(Field { name: key.value, line, tree: entries.next_value()? });
        }
        Ok(Value::Map(fields))
    }
}
