//! Rules: the requests that fail, and their faults.

use super::fault::ProxyFault;
use super::request::ProxyRequest;

/// The requests that a rule matches. Matching requests are counted from 1 since the rule was added; the fault affects
/// `times` requests, starting with number `nth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMatcher {
    writes: bool,
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    about: Option<String>,
    except: Vec<&'static str>,
    nth: usize,
    times: usize,
}

impl RequestMatcher {
    /// Every request.
    #[must_use]
    pub fn every_request() -> Self {
        let (verb, resource, subresource, about) = (None, None, None, None);
        Self {
            writes: false,
            verb,
            resource,
            subresource,
            about,
            except: Vec::new(),
            nth: 1,
            times: usize::MAX,
        }
    }

    /// The n-th request, counted from 1.
    #[must_use]
    pub fn nth_request(n: usize) -> Self {
        Self { nth: n, times: 1, ..Self::every_request() }
    }

    /// Every write, see [`ProxyRequest::is_write`].
    #[must_use]
    pub fn every_write() -> Self {
        Self { writes: true, ..Self::every_request() }
    }

    /// The n-th write, counted from 1.
    #[must_use]
    pub fn nth_write(n: usize) -> Self {
        Self { nth: n, times: 1, ..Self::every_write() }
    }

    /// The n-th request with this verb and resource: `RequestMatcher::nth("create", "jobs", 1)`.
    #[must_use]
    pub fn nth(verb: &str, resource: &str, n: usize) -> Self {
        Self { nth: n, times: 1, ..Self::every_request().verb(verb).of(resource) }
    }

    /// Matches only requests with this verb.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Matches only requests for this resource: `jobs` (objects and subresources) or `clusters/status`.
    #[must_use]
    pub fn of(mut self, resource: &str) -> Self {
        let (resource, below) = match resource.split_once('/') {
            Some((resource, below)) => (resource, Some(below.to_owned())),
            None => (resource, None),
        };
        (self.resource, self.subresource) = (Some(resource.to_owned()), below);
        self
    }

    /// Matches only requests that have this name anywhere in their path or content. Several tests may share a proxy when
    /// no name is part of another.
    #[must_use]
    pub fn about(mut self, name: &str) -> Self {
        self.about = Some(name.to_owned());
        self
    }

    /// Matches no request for this resource.
    #[must_use]
    pub fn except(mut self, resource: &'static str) -> Self {
        self.except.push(resource);
        self
    }

    /// Sets the number of consecutive requests that fail.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    fn matches(&self, request: &ProxyRequest, text: &str) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        (!self.writes || request.is_write())
            && self.about.as_deref().is_none_or(|name| text.contains(name))
            && !self.except.contains(&request.resource.as_str())
            && is(&self.verb, &request.verb)
            && is(&self.resource, &request.resource)
            && is(&self.subresource, &request.subresource)
    }
}

/// The requests that fail, and their fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRule {
    /// The requests.
    pub when: RequestMatcher,
    /// The fault.
    pub how: ProxyFault,
}

/// The id of a rule of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(pub(super) usize);

/// The matches of a rule so far.
#[derive(Debug, Clone, Default)]
pub struct RuleMatches {
    /// The number of matching requests, whether they failed or not.
    pub count: usize,
    /// The requests that failed, such as `patch clusters/status`, in order.
    pub failed: Vec<String>,
}

/// A rule with its matches.
#[derive(Debug)]
pub(super) struct ActiveRule {
    rule: FaultRule,
    pub(super) matches: RuleMatches,
}

impl ActiveRule {
    pub(super) fn new(rule: FaultRule) -> Self {
        Self { rule, matches: RuleMatches::default() }
    }

    /// Counts the request, whose path and content are `text`. Returns the fault if it affects the request.
    pub(super) fn count(&mut self, request: &ProxyRequest, text: &str) -> Option<ProxyFault> {
        if !self.rule.when.matches(request, text) {
            return None;
        }
        self.matches.count += 1;
        let (nth, times, count) = (self.rule.when.nth, self.rule.when.times, self.matches.count);
        let is_affected = count >= nth && count - nth < times;
        is_affected.then(|| self.rule.how.clone())
    }

    /// Records a request that failed because of this rule.
    pub(super) fn failed(&mut self, request: &ProxyRequest) {
        self.matches.failed.push(request.kind());
    }
}

#[cfg(test)]
mod tests {
    use hyper::{HeaderMap, Method};

    use super::*;

    fn affected(when: RequestMatcher) -> Vec<usize> {
        let mut active = ActiveRule::new(FaultRule { when, how: ProxyFault::Hang });
        let lines = [
            (Method::GET, "/apis/batch/v1/namespaces/n/jobs"),
            (Method::POST, "/apis/batch/v1/namespaces/n/jobs"),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"),
            (Method::PATCH, "/apis/batch/v1/namespaces/n/jobs/j/status"),
            (Method::POST, "/api/v1/namespaces/n/configmaps"),
        ];
        let affected = |(number, (method, uri)): (usize, &(Method, &str))| {
            let request = ProxyRequest::read(method, &uri.parse().unwrap(), &HeaderMap::new());
            let content = if number == 4 { r#"{"metadata":{"name":"of-j"}}"# } else { "" };
            active.count(&request, &format!("{uri} {content}")).map(|_| number)
        };
        lines.iter().enumerate().filter_map(affected).collect()
    }

    #[test]
    fn rules_count_only_matching_requests() {
        assert_eq!(affected(RequestMatcher::every_request()), [0, 1, 2, 3, 4]);
        assert_eq!(affected(RequestMatcher::every_write()), [1, 3, 4]);
        assert_eq!(affected(RequestMatcher::nth_write(2)), [3]);
        assert_eq!(affected(RequestMatcher::nth_write(2).times(2)), [3, 4]);
        assert_eq!(affected(RequestMatcher::nth("create", "jobs", 1)), [1]);
        assert_eq!(affected(RequestMatcher::every_write().of("jobs/status")), [3]);
        assert_eq!(affected(RequestMatcher::nth_write(9)), [0; 0]);
        assert_eq!(affected(RequestMatcher::nth_request(3)), [2]);
        assert_eq!(affected(RequestMatcher::every_request().except("jobs").except("leases")), [4]);
        assert_eq!(affected(RequestMatcher::every_request().about("/j/status")), [3]);
        assert_eq!(affected(RequestMatcher::every_request().about("of-j")), [4], "in the body");
    }
}
