//! The routes of both versions, and what every request passes.

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::Uri;
use http::header::LOCATION;
use serde_json::Value;
use tower_http::timeout::TimeoutLayer;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::answer::answer_of;
use crate::authenticate::authenticate;
use crate::description::described;
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

fn description() -> Result<Value, serde_json::Error> {
    let (_, routes) = documented().merge(v1::callbacks()).split_for_parts();
    described(&routes)
}

/// The description of the API, OpenAPI 3.1, as JSON with a line break at the end.
///
/// # Errors
/// When it cannot be serialized.
pub fn openapi() -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&description()?).map(|text| text + "\n")
}

/// All routes. Every request needs a caller, except for the description of the API and its page, which are the same for
/// everybody. Callbacks bring a token of their own.
///
/// # Errors
/// When the description cannot be serialized.
pub(crate) fn router(gateway: Gateway) -> Result<Router, serde_json::Error> {
    let (routes, _) = documented().split_for_parts();
    let (callbacks, _) = v1::callbacks().split_for_parts();
    let page = SwaggerUi::new("/docs").external_url_unchecked("/api/openapi.json", description()?);
    let router = routes
        .fallback(absent)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(gateway.clone(), authenticate))
        .merge(callbacks.method_not_allowed_fallback(wrong_method))
        .merge(page)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, ANSWER_TIMEOUT))
        .layer(from_fn(explain_limits))
        .with_state(gateway);
    Ok(router)
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

/// Leads a path that ends with a slash to the one without it, as the routes of version 1 always did.
async fn absent(uri: Uri) -> Response {
    if let Some(location) = without_slash(&uri) {
        return (StatusCode::MOVED_PERMANENTLY, [(LOCATION, location)]).into_response();
    }
    answer_of(
        RequestError::absent("the path does not exist; GET /api/openapi.json lists all paths"),
        uri.path(),
    )
}

/// The path without slashes at its end, with its query. A path that begins with two slashes would name another server; browsers
/// read a backslash as a slash.
pub(crate) fn without_slash(uri: &Uri) -> Option<String> {
    let path = uri.path().strip_suffix('/')?.trim_end_matches('/');
    let is_local = path.starts_with('/') && !path[1..].starts_with(['/', '\\']);
    is_local.then(|| uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")))
}

async fn wrong_method(uri: Uri) -> Response {
    let text = "the path does not have this method; GET /api/openapi.json lists all methods";
    answer_of(RequestError::new(StatusCode::METHOD_NOT_ALLOWED, text), uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_leads_to_the_path_without_it_on_this_server() {
        let to = |text: &'static str| without_slash(&Uri::from_static(text));
        assert_eq!(to("/api/v1/clusters/"), Some("/api/v1/clusters".to_owned()));
        assert_eq!(to("/api/v1/clusters//?limit=2"), Some("/api/v1/clusters?limit=2".to_owned()));
        for path in ["/api/v1/clusters", "/", "//other.example/", "https://other.example//x/"] {
            assert_eq!(to(path).filter(|to| to.starts_with("//")), None, "{path}");
        }
        assert_eq!((to("/"), to("/a"), to("//other.example/")), (None, None, None));
        assert_eq!(to(r"/\other.example/"), None);
    }
}
