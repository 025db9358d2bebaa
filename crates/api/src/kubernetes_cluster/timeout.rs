//! The deadline of an operation, as text or as a number.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::names::NameError;

/// Minutes, 1 to 1440. It is written as text, as older clients do; numbers are accepted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct TimeoutMins(u16);

impl TimeoutMins {
    /// The default.
    pub const DEFAULT: Self = Self(10);

    /// The time that one operation may take.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_secs(u64::from(self.0) * 60)
    }

    pub(super) fn when_given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        deserializer.deserialize_any(MinutesVisitor)
    }
}

impl FromStr for TimeoutMins {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let minutes = text.parse::<u16>().ok().filter(|minutes| (1..=1440).contains(minutes));
        minutes.map(Self).ok_or_else(|| NameError::Malformed {
            expected: "a number of minutes from 1 to 1440",
            value: text.to_owned(),
        })
    }
}

impl From<TimeoutMins> for String {
    fn from(value: TimeoutMins) -> String {
        value.0.to_string()
    }
}

struct MinutesVisitor;

impl<'de> de::Visitor<'de> for MinutesVisitor {
    type Value = Option<TimeoutMins>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of minutes from 1 to 1440")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, minutes: u64) -> Result<Self::Value, E> {
        self.visit_str(&minutes.to_string())
    }

    fn visit_i64<E: de::Error>(self, minutes: i64) -> Result<Self::Value, E> {
        self.visit_str(&minutes.to_string())
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Deserialize<'de> for TimeoutMins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::when_given(deserializer)?.ok_or_else(|| de::Error::custom("the number of minutes is missing"))
    }
}

impl JsonSchema for TimeoutMins {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TimeoutMins".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "title": "minutes",
            "minimum": 1,
            "maximum": 1440,
            "maxLength": 4,
            "pattern": "^$|^[1-9][0-9]{0,3}$"
        })
    }
}
