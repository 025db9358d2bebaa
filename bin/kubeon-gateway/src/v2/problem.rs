//! Errors of version 2.

use axum::response::{IntoResponse, Response};

use crate::request_error::RequestError;

/// An error of version 2.
pub(crate) struct ProblemError(RequestError);

impl From<RequestError> for ProblemError {
    fn from(error: RequestError) -> Self {
        Self(error)
    }
}

impl IntoResponse for ProblemError {
    fn into_response(self) -> Response {
        self.0.problem()
    }
}
