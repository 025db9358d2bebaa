//! The parameters of lists, and pages.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use http::Uri;
use http::request::Parts;
use kubeon_rest::Page;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::problem::ProblemError;
use crate::fleet::ObjectKey;
use crate::request_error::RequestError;

/// The number of items on a page unless the request says another one.
const DEFAULT_LIMIT: usize = 500;
/// The most items on a page.
const MOST: usize = 1000;

/// Parameters of a request. Unknown and repeated ones are refused.
pub(super) struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = ProblemError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemError> {
        Ok(Self(parameters(&parts.uri)?))
    }
}

/// The parameters in the query of a URI.
///
/// # Errors
/// When one is unknown, is repeated or has a wrong value.
pub(super) fn parameters<T: DeserializeOwned>(uri: &Uri) -> Result<T, RequestError> {
    let refused = |error: QueryRejection| RequestError::bad(error.body_text());
    Query::try_from_uri(uri).map(|Query(value)| value).map_err(refused)
}

/// Filters and page of a list of clusters.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ClusterQuery {
    /// Only clusters in this phase; `Failed`, for example.
    pub phase: Option<String>,
    /// Only clusters of this region.
    pub region: Option<String>,
    /// The number of items, 1 to 1000. Default: 500.
    pub limit: Option<usize>,
    /// The value `continue` of the page before.
    pub r#continue: Option<String>,
}

/// Filters and page of a list of operations.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OperationQuery {
    /// Only operations of clusters in this namespace.
    pub namespace: Option<String>,
    /// Only operations of this cluster.
    pub cluster: Option<String>,
    /// Only operations with this status: `Waiting`, `Running`, `Succeeded` or `Failed`.
    pub status: Option<String>,
    /// The number of items, 1 to 1000. Default: 500.
    pub limit: Option<usize>,
    /// The value `continue` of the page before.
    pub r#continue: Option<String>,
}

/// The objects that a stream is about.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamQuery {
    /// Only clusters in this namespace, or operations of such clusters.
    pub namespace: Option<String>,
}

/// The part of a log.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Wait for further lines until the operation ends. Default: false.
    #[serde(default)]
    pub follow: bool,
    /// Only the last lines.
    pub tail: Option<u32>,
    /// Only lines of the last seconds.
    pub since: Option<u32>,
}

/// A selection of steps.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StepQuery {
    /// Only steps of the host with this address or name.
    pub host: Option<String>,
    /// Only steps with this result, such as `Failed`.
    pub result: Option<String>,
}

/// One page of all matching items.
pub(super) struct PageRequest {
    limit: usize,
    /// The last item of the page before.
    pub after: Option<ObjectKey>,
}

impl PageRequest {
    /// # Errors
    /// When the limit is out of range or `continue` is not of an earlier page.
    pub(super) fn new(limit: Option<usize>, after: Option<&String>) -> Result<Self, RequestError> {
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MOST).contains(&limit) {
            return Err(RequestError::bad(format!("limit: {limit} is not in the range 1 to {MOST}")));
        }
        let key = |text: &String| {
            let (namespace, name) = text.split_once('/')?;
            Some((namespace.to_owned(), name.to_owned()))
        };
        let after = match after {
            None => None,
            Some(text) => Some(key(text).ok_or_else(|| {
                RequestError::bad(format!("continue: {text:?} is not the value of an earlier page"))
            })?),
        };
        Ok(Self { limit, after })
    }

    /// The first page of these items, which all follow `after`.
    pub(super) fn page<K, T>(
        &self,
        items: &[K],
        key: impl Fn(&K) -> ObjectKey,
        view: impl Fn(&K) -> T,
    ) -> Page<T> {
        let shown = &items[..items.len().min(self.limit)];
        let remaining = items.len() - shown.len();
        let last = shown.last().filter(|_| remaining > 0).map(key);
        Page {
            items: shown.iter().map(view).collect(),
            next: last.map(|(namespace, name)| format!("{namespace}/{name}")),
            remaining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_every_item_once() {
        let all = ["a", "b", "c", "d", "e"];
        let (mut seen, mut next) = (Vec::new(), None);
        loop {
            let request = PageRequest::new(Some(2), next.as_ref()).unwrap();
            let after = request.after.clone().map(|(_, name)| name);
            let rest: Vec<&str> = all
                .into_iter()
                .filter(|name| after.as_ref().is_none_or(|after| *name > after.as_str()))
                .collect();
            let page = request.page(&rest, |name| ("n".to_owned(), (*name).to_owned()), |name| *name);
            assert_eq!(page.remaining, rest.len() - page.items.len());
            seen.extend(page.items);
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn a_wrong_page_is_refused() {
        assert!(PageRequest::new(Some(0), None).is_err() && PageRequest::new(Some(1001), None).is_err());
        assert!(PageRequest::new(None, Some(&"x".to_owned())).is_err());
    }
}
