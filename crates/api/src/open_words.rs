//! Enums with fixed words as known values, which keep an unknown word as it was written. A message, a state file or an object
//! of another version may contain a word that this version does not know; reading it must not fail.

macro_rules! open_words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// Any other word, as it was written.
            Other(String),
        }

        impl $name {
            /// The serialized word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                Self::from(word.as_str())
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        /// The empty word: an absent field.
        impl Default for $name {
            fn default() -> Self {
                Self::from("")
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        /// An API server accepts every word.
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    };
}
pub(crate) use open_words;

#[cfg(test)]
mod tests {
    open_words! {
        /// A colour.
        Colour {
            /// Red.
            Red = "red",
        }
    }

    #[test]
    fn a_known_word_is_parsed_and_an_unknown_word_is_kept() {
        for (word, value) in
            [("red", Colour::Red), ("Red", Colour::Other("Red".to_owned())), ("", Colour::default())]
        {
            let json = serde_json::to_string(word).unwrap();
            assert_eq!(serde_json::from_str::<Colour>(&json).unwrap(), value);
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
    }
}
