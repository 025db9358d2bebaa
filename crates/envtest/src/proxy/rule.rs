//! Which requests fail, and how.

use super::fault::ProxyFault;
use super::request::ProxyRequest;

/// The requests that a rule matches. Matching requests are numbered from 1 since the rule was added; the fault hits
/// `times` of them, from number `nth` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    writes: bool,
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    about: Option<String>,
    but: Vec<&'static str>,
    nth: usize,
    times: usize,
}

impl When {
    /// Every request.
    #[must_use]
    pub fn every_request() -> Self {
        let (verb, resource, subresource, about) = (None, None, None, None);
        Self { writes: false, verb, resource, subresource, about, but: Vec::new(), nth: 1, times: usize::MAX }
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

    /// The n-th request of such a verb and resource: `When::nth("create", "jobs", 1)`.
    #[must_use]
    pub fn nth(verb: &str, resource: &str, n: usize) -> Self {
        Self { nth: n, times: 1, ..Self::every_request().verb(verb).of(resource) }
    }

    /// Only with this verb.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Only about this resource: `jobs` (the objects and what is below them) or `clusters/status`.
    #[must_use]
    pub fn of(mut self, resource: &str) -> Self {
        let (resource, below) = match resource.split_once('/') {
            Some((resource, below)) => (resource, Some(below.to_owned())),
            None => (resource, None),
        };
        (self.resource, self.subresource) = (Some(resource.to_owned()), below);
        self
    }

    /// Only requests that have this name anywhere in their path or content. Several tests may share a proxy when no name
    /// is part of another.
    #[must_use]
    pub fn about(mut self, name: &str) -> Self {
        self.about = Some(name.to_owned());
        self
    }

    /// Not this resource.
    #[must_use]
    pub fn but(mut self, resource: &'static str) -> Self {
        self.but.push(resource);
        self
    }

    /// The number of consecutive requests that fail.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    fn fits(&self, request: &ProxyRequest, text: &str) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        (!self.writes || request.is_write())
            && self.about.as_deref().is_none_or(|name| text.contains(name))
            && !self.but.contains(&request.resource.as_str())
            && is(&self.verb, &request.verb)
            && is(&self.resource, &request.resource)
            && is(&self.subresource, &request.subresource)
    }
}

/// Which requests fail, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRule {
    /// The requests.
    pub when: When,
    /// The fault.
    pub how: ProxyFault,
}

/// A rule that was given to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(pub(super) usize);

/// The matches of a rule so far.
#[derive(Debug, Clone, Default)]
pub struct Met {
    /// The number of matching requests, whether they failed or not.
    pub fitting: usize,
    /// The requests that failed, such as `patch clusters/status`, in order.
    pub failed: Vec<String>,
}

/// A rule with its matches.
#[derive(Debug)]
pub(super) struct Armed {
    rule: FaultRule,
    pub(super) met: Met,
}

impl Armed {
    pub(super) fn new(rule: FaultRule) -> Self {
        Self { rule, met: Met::default() }
    }

    /// Counts the request, whose path and content are `text`. Returns the fault if the rule hits it.
    pub(super) fn meet(&mut self, request: &ProxyRequest, text: &str) -> Option<ProxyFault> {
        if !self.rule.when.fits(request, text) {
            return None;
        }
        self.met.fitting += 1;
        let (nth, times, seen) = (self.rule.when.nth, self.rule.when.times, self.met.fitting);
        let is_hit = seen >= nth && seen - nth < times;
        is_hit.then(|| self.rule.how.clone())
    }

    /// Records that the request failed by this rule.
    pub(super) fn failed(&mut self, request: &ProxyRequest) {
        self.met.failed.push(request.kind());
    }
}

#[cfg(test)]
mod tests {
    use hyper::{HeaderMap, Method};

    use super::*;

    fn hits(when: When) -> Vec<usize> {
        let mut armed = Armed::new(FaultRule { when, how: ProxyFault::Hang });
        let lines = [
            (Method::GET, "/apis/batch/v1/namespaces/n/jobs"),
            (Method::POST, "/apis/batch/v1/namespaces/n/jobs"),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"),
            (Method::PATCH, "/apis/batch/v1/namespaces/n/jobs/j/status"),
            (Method::POST, "/api/v1/namespaces/n/configmaps"),
        ];
        let met = |(number, (method, uri)): (usize, &(Method, &str))| {
            let request = ProxyRequest::read(method, &uri.parse().unwrap(), &HeaderMap::new());
            let content = if number == 4 { r#"{"metadata":{"name":"of-j"}}"# } else { "" };
            armed.meet(&request, &format!("{uri} {content}")).map(|_| number)
        };
        lines.iter().enumerate().filter_map(met).collect()
    }

    #[test]
    fn count_only_what_they_are_about() {
        assert_eq!(hits(When::every_request()), [0, 1, 2, 3, 4]);
        assert_eq!(hits(When::every_write()), [1, 3, 4]);
        assert_eq!(hits(When::nth_write(2)), [3]);
        assert_eq!(hits(When::nth_write(2).times(2)), [3, 4]);
        assert_eq!(hits(When::nth("create", "jobs", 1)), [1]);
        assert_eq!(hits(When::every_write().of("jobs/status")), [3]);
        assert_eq!(hits(When::nth_write(9)), [0; 0]);
        assert_eq!(hits(When::nth_request(3)), [2]);
        assert_eq!(hits(When::every_request().but("jobs").but("leases")), [4]);
        assert_eq!(hits(When::every_request().about("/j/status")), [3]);
        assert_eq!(hits(When::every_request().about("of-j")), [4], "in what is sent");
    }
}
