//! Deserializers for fields that older clients write as empty or `null` instead of omitting them.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, IntoDeserializer};

/// `null` and `""` become `None`; any other text must be a `T`.
pub(super) fn when_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let text = Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty());
    let parse =
        |text: String| T::deserialize(IntoDeserializer::<serde::de::value::Error>::into_deserializer(text));
    text.map(parse).transpose().map_err(D::Error::custom)
}

/// `null` becomes the default.
pub(super) fn when_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
