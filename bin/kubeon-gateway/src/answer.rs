//! Errors that do not come from a handler, in the form of the version that is asked.

use axum::response::{IntoResponse as _, Response};

use crate::request_error::RequestError;
use crate::v1::EnvelopeError;

/// An error in the form of the version that the path belongs to.
pub(crate) fn answer_of(error: RequestError, path: &str) -> Response {
    if path.starts_with("/api/v1/") { EnvelopeError::from(error).into_response() } else { error.problem() }
}
