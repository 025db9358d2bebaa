//! When the hosts of a cluster may be changed.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::names::NameError;
use crate::words::words;

words! {
    /// A day of the week.
    Weekday {
        /// Monday.
        Monday = "Monday",
        /// Tuesday.
        Tuesday = "Tuesday",
        /// Wednesday.
        Wednesday = "Wednesday",
        /// Thursday.
        Thursday = "Thursday",
        /// Friday.
        Friday = "Friday",
        /// Saturday.
        Saturday = "Saturday",
        /// Sunday.
        Sunday = "Sunday",
    }
}

/// A time of the week in which changes of the hosts may begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MaintenanceWindow {
    /// The days on which it begins. Default: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Weekday>,
    /// When it begins, in UTC: HH:MM.
    pub start: TimeOfDay,
    /// Hours until it ends, 1 to 24.
    #[schemars(range(min = 1, max = 24))]
    pub hours: u8,
}

/// Hours and minutes in UTC, from 00:00 to 23:59.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay {
    /// 0 to 23.
    pub hour: i8,
    /// 0 to 59.
    pub minute: i8,
}

impl FromStr for TimeOfDay {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let part = |text: &str, most: i8| {
            let number = text.parse().ok().filter(|number| (0..=most).contains(number));
            number.filter(|_| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let parsed = text
            .split_once(':')
            .and_then(|(hour, minute)| Some(Self { hour: part(hour, 23)?, minute: part(minute, 59)? }));
        parsed.ok_or_else(|| NameError::Malformed {
            expected: "a time from 00:00 to 23:59",
            value: text.to_owned(),
        })
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> Self {
        time.to_string()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

impl JsonSchema for TimeOfDay {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "TimeOfDay".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$", "maxLength": 5})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_two_digits_for_hours_and_minutes() {
        for text in ["00:00", "09:05", "23:59"] {
            assert_eq!(text.parse::<TimeOfDay>().unwrap().to_string(), text);
        }
        for text in ["", "9:05", "24:00", "12:60", "12:5", "+1:00", "-1:00", "12:00:00"] {
            assert!(text.parse::<TimeOfDay>().unwrap_err().to_string().contains("23:59"), "{text}");
        }
    }
}
