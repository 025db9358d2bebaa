//! A YAML document as a tree in which every value knows where it stands.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer};
use serde_saphyr::{Error, Location, Options, Spanned};

/// Where something stands, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextPosition {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl From<Location> for TextPosition {
    fn from(at: Location) -> Self {
        Self { line: at.line().max(1), column: at.column().max(1) }
    }
}

/// A value and its place.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) place: TextPosition,
    pub(super) kind: Kind,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Bool,
    Integer(i128),
    Fraction,
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, TextPosition, Tree)>),
}

impl Kind {
    /// The kind's name in a sentence, with its article.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool => "true or false",
            Self::Integer(_) | Self::Fraction => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl Tree {
    /// The value of a mapping's field.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map(fields) => fields.iter().find(|(key, ..)| key == name).map(|(.., value)| value),
            _ => None,
        }
    }

    /// The path of the innermost value that begins at or before `place` and ends after it.
    pub(super) fn path_at(&self, place: TextPosition) -> String {
        let mut path = String::new();
        let mut tree = self;
        loop {
            let next = match &tree.kind {
                Kind::Map(fields) => {
                    let before = fields.iter().rev().find(|(_, key, _)| key.before(place));
                    before.map(|(name, _, value)| (join(&path, name), value))
                }
                Kind::List(items) => {
                    let before = items.iter().enumerate().rev().find(|(_, item)| item.place.before(place));
                    before.map(|(index, item)| (format!("{path}[{index}]"), item))
                }
                _ => None,
            };
            match next {
                Some((inner, value)) => (path, tree) = (inner, value),
                None => return path,
            }
        }
    }
}

impl TextPosition {
    fn before(self, other: Self) -> bool {
        (self.line, self.column) <= (other.line, other.column)
    }
}

/// A field's path within another one.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// How every text is read: like an API server, with the default limits against hostile input.
pub(super) fn options() -> Options {
    serde_saphyr::options! { with_snippet: false, emit_comments: false }
}

/// All documents of a text, empty ones included.
pub(super) fn documents(text: &str) -> Result<Vec<Tree>, Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

/// Where an error stands and what it says, without its place.
pub(super) fn explain(error: &Error) -> (TextPosition, String) {
    let place = error.location().map_or(TextPosition { line: 1, column: 1 }, TextPosition::from);
    if let Error::DuplicateMappingKey { key: Some(key), .. } = error.without_snippet() {
        return (place, format!("the field {key} is given twice"));
    }
    let text = error.without_snippet().to_string();
    let text = text.lines().next().unwrap_or_default();
    let text = text.split(" at line ").next().unwrap_or_default();
    (place, text.trim_end_matches([':', ',', ' ']).to_owned())
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Self { place: spanned.referenced.into(), kind: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> de::Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        Kind::deserialize(deserializer)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Kind, E> {
        Ok(Kind::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Integer(value.into()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Kind, E> {
        Ok(Kind::Fraction)
    }

    fn visit_str<E>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Kind::List(list))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Kind, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            fields.push((key.value, key.referenced.into(), entries.next_value()?));
        }
        Ok(Kind::Map(fields))
    }
}
