//! A YAML document as a tree of values with their positions in the text.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer};
use serde_saphyr::{Error, Location, Options, Spanned};

/// A position in a text; both numbers start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextPosition {
    /// The line.
    pub line: u64,
    /// The character in the line.
    pub column: u64,
}

impl From<Location> for TextPosition {
    fn from(at: Location) -> Self {
        Self { line: at.line().max(1), column: at.column().max(1) }
    }
}

/// A value and its position. No `Debug`: it may be a password.
#[derive(Clone)]
pub struct YamlNode {
    /// Where the value begins.
    pub place: TextPosition,
    /// The value.
    pub value: YamlValue,
}

/// A YAML value. Scalars are not resolved further than numbers and booleans. No `Debug`: it may be a password.
#[derive(Clone)]
pub enum YamlValue {
    /// Nothing, or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Another number.
    Fraction(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<YamlNode>),
    /// A mapping.
    Map(Vec<YamlField>),
}

/// An entry of a mapping.
#[derive(Clone)]
pub struct YamlField {
    /// The key.
    pub name: String,
    /// Where the key begins.
    pub place: TextPosition,
    /// The value.
    pub node: YamlNode,
}

impl YamlValue {
    /// The name of the kind in a sentence, with its article.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Fraction(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// A scalar as text; `None` for nothing, lists and mappings.
    #[must_use]
    pub fn scalar(&self) -> Option<String> {
        match self {
            Self::Bool(yes) => Some(yes.to_string()),
            Self::Integer(number) => Some(number.to_string()),
            Self::Fraction(number) => Some(number.to_string()),
            Self::Text(text) => Some(text.clone()),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }
}

impl YamlNode {
    /// The fields of a mapping; none for an empty value.
    ///
    /// # Errors
    /// The name of the kind of any other value.
    pub fn fields(&self) -> Result<&[YamlField], &'static str> {
        match &self.value {
            YamlValue::Map(fields) => Ok(fields),
            YamlValue::Null => Ok(&[]),
            other => Err(other.kind_name()),
        }
    }

    /// The value of a mapping's field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.fields().ok()?.iter().find(|field| field.name == name).map(|field| &field.node)
    }

    /// The path of the innermost value that begins at or before `place` and ends after it.
    pub(crate) fn path_at(&self, place: TextPosition) -> String {
        let mut path = String::new();
        let mut tree = self;
        loop {
            let next = match &tree.value {
                YamlValue::Map(fields) => {
                    let before = fields.iter().rev().find(|field| field.place.before(place));
                    before.map(|field| (join(&path, &field.name), &field.node))
                }
                YamlValue::List(items) => {
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
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Options for every text: parsed as by an API server, with the default limits against hostile input.
pub(crate) fn options() -> Options {
    serde_saphyr::options! { with_snippet: false, emit_comments: false }
}

/// All documents of a text, empty ones included.
///
/// # Errors
/// When the text is not YAML.
pub fn documents(text: &str) -> Result<Vec<YamlNode>, YamlMistake> {
    serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| YamlMistake::of(&error))
}

/// Why a text is not YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlMistake {
    /// Where reading stopped.
    pub place: TextPosition,
    /// The reason.
    pub reason: YamlReason,
}

/// The reason of a [`YamlMistake`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum YamlReason {
    /// A mapping has this key twice.
    DuplicateKey(String),
    /// The message of the parser, without the position.
    Syntax(String),
}

impl YamlMistake {
    /// The position and the reason of an error of the parser.
    pub(crate) fn of(error: &Error) -> Self {
        let place = error.location().map_or(TextPosition { line: 1, column: 1 }, TextPosition::from);
        if let Error::DuplicateMappingKey { key: Some(key), .. } = error.without_snippet() {
            return Self { place, reason: YamlReason::DuplicateKey(key.clone()) };
        }
        let text = error.without_snippet().to_string();
        let text = text.lines().next().unwrap_or_default();
        let text = text.split(" at line ").next().unwrap_or_default();
        Self { place, reason: YamlReason::Syntax(text.trim_end_matches([':', ',', ' ']).to_owned()) }
    }
}

impl fmt::Display for YamlReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateKey(key) => write!(f, "the field {key} is given twice"),
            Self::Syntax(text) => f.write_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<YamlValue>::deserialize(deserializer)?;
        Ok(Self { place: spanned.referenced.into(), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> de::Visitor<'de> for ValueVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        YamlValue::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Fraction(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(YamlValue::List(list))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<YamlValue, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let (name, place) = (key.value, key.referenced.into());
            fields.push(YamlField { name, place, node: entries.next_value()? });
        }
        Ok(YamlValue::Map(fields))
    }
}
