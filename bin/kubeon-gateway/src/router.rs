//! The routes of both versions, and what every request passes.

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use http::Uri;
use tower_http::timeout::TimeoutLayer;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::answer::answer_of;
use crate::authenticate::authenticate;
use crate::gateway::Gateway;
use crate::request_error::RequestError;
use crate::{v1, v2};

/// The longest body in bytes: what an API server accepts.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// The timeout until an answer begins, with the time for the body of the request. A stream may go on for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "kubeon",
        description = "Clusters of a meta cluster: version 1 has the routes of kubernetes-operator, version 2 everything else.",
        license(name = "Apache-2.0")
    ),
    modifiers(&BearerTokens),
    security(("token" = []))
)]
struct ApiInfo;

/// Describes that every request has a token.
struct BearerTokens;

impl Modify for BearerTokens {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

fn documented() -> OpenApiRouter<Gateway> {
    OpenApiRouter::with_openapi(ApiInfo::openapi()).merge(v1::routes()).merge(v2::routes())
}

/// The description of the API, OpenAPI 3.1, as JSON with a line break at the end.
///
/// # Errors
/// When it cannot be serialized.
pub fn openapi() -> Result<String, serde_json::Error> {
    let (_, description) = documented().merge(v1::callbacks()).split_for_parts();
    description.to_pretty_json().map(|text| text + "\n")
}

/// All routes. Every request needs a caller, except for the description of the API and its page, which are the same for
/// everybody. Callbacks bring a token of their own.
pub(crate) fn router(gateway: Gateway) -> Router {
    let (routes, _) = documented().split_for_parts();
    let (callbacks, _) = v1::callbacks().split_for_parts();
    let (_, description) = documented().merge(v1::callbacks()).split_for_parts();
    let page = SwaggerUi::new("/docs").url("/api/openapi.json", description);
    routes
        .fallback(absent)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(gateway.clone(), authenticate))
        .merge(callbacks)
        .merge(page)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, ANSWER_TIMEOUT))
        .layer(from_fn(explain_limits))
        .with_state(gateway)
}

/// The limits of the layers below say only their status.
async fn explain_limits(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let text = match response.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            "the body is longer than 3 MiB, which is all that an API server accepts"
        }
        StatusCode::REQUEST_TIMEOUT => "the request was not received and answered within 30 s; send it again",
        _ => return response,
    };
    answer_of(RequestError::new(response.status(), text), &path)
}

async fn absent(uri: Uri) -> Response {
    answer_of(
        RequestError::absent("the path does not exist; GET /api/openapi.json lists all paths"),
        uri.path(),
    )
}

async fn wrong_method(uri: Uri) -> Response {
    let text = "the path does not have this method; GET /api/openapi.json lists all methods";
    answer_of(RequestError::new(StatusCode::METHOD_NOT_ALLOWED, text), uri.path())
}
