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
    /// Wait for further lines until the operation ends, or 16 MiB were read. Default: false.
    #[serde(default)]
    pub follow: bool,
    /// Only the last lines.
    pub tail: Option<u32>,
    /// Only lines of the last seconds.
    pub since: Option<u32>,
}

/// Filters and page of the hosts of a cluster.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HostQuery {
    /// Only hosts with this role: `master`, `worker` or `etcd`.
    pub role: Option<String>,
    /// Only hosts whose node is Ready, or only those whose node is not.
    pub ready: Option<bool>,
    /// The number of items, 1 to 1000. Default: 500.
    pub limit: Option<usize>,
    /// The value `continue` of the page before.
    pub r#continue: Option<String>,
}

/// Filters and page of the steps of an operation.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StepQuery {
    /// Only steps of the host with this address or name.
    pub host: Option<String>,
    /// Only steps with this result, such as `Failed`.
    pub result: Option<String>,
    /// The number of items, 1 to 1000. Default: 500.
    pub limit: Option<usize>,
    /// The value `continue` of the page before.
    pub r#continue: Option<String>,
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
        let limit = checked(limit)?;
        let key = |text: &String| {
            let (namespace, name) = text.split_once('/')?;
            Some((namespace.to_owned(), name.to_owned()))
        };
        let after = match after {
            None => None,
            Some(text) => Some(key(text).ok_or_else(|| not_of_a_page(text))?),
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

/// One page of the matching items of a list whose order is fixed. `continue` is a place in the whole list.
pub(super) struct PlaceRequest {
    limit: usize,
    first: usize,
}

impl PlaceRequest {
    /// # Errors
    /// When the limit is out of range or `continue` is not of an earlier page.
    pub(super) fn new(limit: Option<usize>, first: Option<&String>) -> Result<Self, RequestError> {
        let limit = checked(limit)?;
        let first = match first {
            None => 0,
            Some(text) => text.parse::<usize>().map_err(|_| not_of_a_page(text))?,
        };
        Ok(Self { limit, first })
    }

    pub(super) fn page<T>(&self, items: impl Iterator<Item = T>, is_wanted: impl Fn(&T) -> bool) -> Page<T> {
        let mut rest = items.enumerate().skip(self.first).filter(|(_, item)| is_wanted(item));
        let shown: Vec<(usize, T)> = rest.by_ref().take(self.limit).collect();
        let remaining = rest.count();
        let last = shown.last().filter(|_| remaining > 0);
        let next = last.map(|(place, _)| (place + 1).to_string());
        Page { items: shown.into_iter().map(|(_, item)| item).collect(), next, remaining }
    }
}

fn checked(limit: Option<usize>) -> Result<usize, RequestError> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if (1..=MOST).contains(&limit) {
        return Ok(limit);
    }
    Err(RequestError::bad(format!("limit: {limit} is not in the range 1 to {MOST}")))
}

fn not_of_a_page(text: &str) -> RequestError {
    RequestError::bad(format!("continue: {text:?} is not the value of an earlier page"))
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
    fn pages_of_places_have_every_matching_item_once() {
        let (mut seen, mut next) = (Vec::new(), None);
        for _ in 0..4 {
            let page = PlaceRequest::new(Some(2), next.as_ref()).unwrap().page(0..10, |n| n % 2 == 1);
            assert_eq!(page.remaining, 5 - seen.len() - page.items.len());
            seen.extend(page.items);
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(seen, [1, 3, 5, 7, 9]);
        let last = usize::MAX.to_string();
        assert!(PlaceRequest::new(None, Some(&last)).unwrap().page(0..10, |_| true).items.is_empty());
        assert!(PlaceRequest::new(Some(0), None).is_err());
        for wrong in ["-1", "", "a/b", "99999999999999999999999"] {
            assert!(PlaceRequest::new(None, Some(&wrong.to_owned())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_page_is_refused() {
        assert!(PageRequest::new(Some(0), None).is_err() && PageRequest::new(Some(1001), None).is_err());
        assert!(PageRequest::new(None, Some(&"x".to_owned())).is_err());
    }
}
