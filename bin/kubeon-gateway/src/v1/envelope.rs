//! The form of every answer of version 1, and the reading of its bodies.

use std::future::ready;
use std::io;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use futures::stream::{StreamExt as _, once};
use http::{HeaderValue, StatusCode, header};
use kubeon_rest::v1::Envelope;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::request_error::{RequestError, with_challenge};

/// An answer of version 1 that reports success.
pub(super) struct EnvelopeReply(pub String);

impl EnvelopeReply {
    pub(super) fn success() -> Self {
        Self("success".to_owned())
    }
}

impl IntoResponse for EnvelopeReply {
    fn into_response(self) -> Response {
        envelope(StatusCode::OK, "OK", self.0)
    }
}

/// An error of version 1. Its clients know one status for everything that is wrong with a request.
pub(crate) struct EnvelopeError(RequestError);

impl From<RequestError> for EnvelopeError {
    fn from(mut error: RequestError) -> Self {
        if matches!(
            error.status,
            StatusCode::NOT_FOUND
                | StatusCode::CONFLICT
                | StatusCode::GONE
                | StatusCode::UNPROCESSABLE_ENTITY
        ) {
            error.status = StatusCode::BAD_REQUEST;
        }
        Self(error)
    }
}

impl EnvelopeError {
    /// A conflict that keeps its status.
    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self(RequestError::conflict(detail))
    }
}

impl IntoResponse for EnvelopeError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let title = error.title();
        with_challenge(envelope(error.status, title, error.detail), error.status)
    }
}

fn envelope(status: StatusCode, code: &str, message: String) -> Response {
    let mut response = (status, Json(Envelope { code: code.to_owned(), message })).into_response();
    response.headers_mut().insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

/// An answer of success whose message is a text of any length, which is never in memory as a whole. Its form is that of [`Envelope`].
pub(super) fn streamed_reply(
    pieces: impl Stream<Item = Result<String, RequestError>> + Send + 'static,
) -> Response {
    let written = |text: &str| ready(Ok::<_, io::Error>(text.to_owned()));
    let pieces = pieces.map(|piece| match piece {
        Ok(text) => Ok(inside_of_json_text(text)),
        Err(error) => Err(io::Error::other(error.detail)),
    });
    let body = once(written(r#"{"code":"OK","message":""#)).chain(pieces).chain(once(written(r#""}"#)));
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::PRAGMA, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

/// The text as JSON, without its quotes.
fn inside_of_json_text(text: String) -> String {
    let quoted = Value::String(text).to_string();
    let inside = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inside.unwrap_or_default().to_owned()
}

/// Reads a body. An empty one is the error `EOF`, as clients know it.
pub(super) fn read_body<T: DeserializeOwned>(body: &Bytes) -> Result<T, RequestError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::bad("EOF"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| RequestError::bad(format!("{}: {}", error.path(), error.inner())))?;
    deserializer.end().map_err(|error| RequestError::bad(error.to_string()))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use kubeon_rest::v1::{CallbackBody, ClusterBody};
    use proptest::prelude::*;

    use super::*;

    fn refused(body: &str) -> String {
        read_body::<ClusterBody>(&Bytes::copy_from_slice(body.as_bytes())).unwrap_err().detail
    }

    #[test]
    fn b4_an_empty_body_and_a_wrong_field_are_named() {
        assert_eq!(refused(""), "EOF");
        assert_eq!(refused(" \n"), "EOF");
        assert!(refused(r#"{"retry":"x"}"#).contains("retry"), "{}", refused(r#"{"retry":"x"}"#));
        assert!(refused("{} {}").contains("trailing"), "{}", refused("{} {}"));
    }

    #[tokio::test]
    async fn a_streamed_reply_has_the_form_of_the_others() {
        let answer = |texts: &[&str]| {
            let pieces: Vec<_> = texts.iter().map(|text| Ok((*text).to_owned())).collect();
            streamed_reply(futures::stream::iter(pieces))
        };
        let bytes = async |answer: Response| axum::body::to_bytes(answer.into_body(), 1000).await;
        for texts in [&["a\n"][..], &[], &["say \"a\"\n", "\\", "\u{1}\u{e9}\u{1f980}\""]] {
            let streamed = answer(texts);
            let plain = EnvelopeReply(texts.concat()).into_response();
            assert_eq!(streamed.status(), plain.status());
            for name in [header::CONTENT_TYPE, header::PRAGMA] {
                assert_eq!(streamed.headers()[&name], plain.headers()[&name]);
            }
            assert_eq!(bytes(streamed).await.unwrap(), bytes(plain).await.unwrap());
        }
        let broken = vec![Ok("a".to_owned()), Err(RequestError::unavailable("it was interrupted"))];
        assert!(bytes(streamed_reply(futures::stream::iter(broken))).await.is_err());
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused_with_a_reason(
            body in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "[\\[\\]{}\":,a-z0-9. -]{0,200}".prop_map(String::into_bytes),
            ]
        ) {
            let body = Bytes::from(body);
            for refused in [read_body::<ClusterBody>(&body).err(), read_body::<CallbackBody>(&body).err()] {
                prop_assert!(refused.is_none_or(|error| !error.detail.is_empty() && error.status == 400));
            }
        }
    }
}
