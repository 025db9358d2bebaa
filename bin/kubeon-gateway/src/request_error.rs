//! Why a request fails, before it has the form of a version of the API.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kubeon_rest::Problem;

/// Why a request fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// The HTTP status.
    pub status: StatusCode,
    /// For a person.
    pub detail: String,
}

impl RequestError {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn absent(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// The name of the status, such as `Not Found`.
    pub(crate) fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Error")
    }

    /// The answer of version 2.
    pub(crate) fn problem(self) -> Response {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: self.title().to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
        };
        let mut response = (self.status, axum::Json(problem)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        with_challenge(response, self.status)
    }
}

/// Says how to authenticate, as RFC 9110 asks of an answer 401.
pub(crate) fn with_challenge(mut response: Response, status: StatusCode) -> Response {
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
                Self::new(code, status.message.clone())
            }
            // The cause may contain addresses of the meta cluster.
            error => {
                tracing::warn!(error = format!("{error:?}"), "a request to the API server failed");
                Self::unavailable("the API server of the meta cluster does not answer; try again later")
            }
        }
    }
}

impl From<kube::core::request::Error> for RequestError {
    fn from(error: kube::core::request::Error) -> Self {
        Self::bad(error.to_string())
    }
}
