//! The body of an error.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request failed, in the form of RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: status and title say what happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the status, such as `Not Found`.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// For a person: the object, the cause, and what to do.
    pub detail: String,
}
