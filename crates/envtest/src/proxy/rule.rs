//! Which requests fail, and how.

use std::time::Duration;

use super::Request;

/// Which requests a rule is about. Those that fit are numbered from 1 since the rule was added; the fault meets
/// `times` of them, beginning with number `nth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    writes: bool,
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    nth: usize,
    times: usize,
}

impl When {
    /// Every request.
    #[must_use]
    pub fn every_request() -> Self {
        let (verb, resource, subresource) = (None, None, None);
        Self { writes: false, verb, resource, subresource, nth: 1, times: usize::MAX }
    }

    /// Every write, as [`Request::is_write`] has it.
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

    /// Only of this verb.
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

    /// How many of them, one after the other.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    fn fits(&self, request: &Request) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        (!self.writes || request.is_write())
            && is(&self.verb, &request.verb)
            && is(&self.resource, &request.resource)
            && is(&self.subresource, &request.subresource)
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answered with this HTTP status and a matching `Status` object; the server never sees it.
    Status(u16),
    /// Answered with 429 and `Retry-After` in seconds; the server never sees it.
    RetryAfter(u32),
    /// Passed on after a while.
    Delay(Duration),
    /// Never answered; the server never sees it.
    Hang,
    /// Done by the server, never answered.
    HangAfter,
    /// Its connection is closed; the server never sees it.
    Refuse,
    /// Done by the server; its connection is closed without the answer.
    LoseAnswer,
    /// All connections are cut and no new ones let in until [`super::FaultProxy::heal`]; the server never sees it.
    CutBefore,
    /// Done by the server, then as `CutBefore`: what the world looks like when the client dies after this write.
    CutAfter,
}

/// Which requests fail, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRule {
    /// Which.
    pub when: When,
    /// How.
    pub how: Fault,
}

/// A rule that counts.
#[derive(Debug)]
pub(super) struct Armed {
    rule: FaultRule,
    seen: usize,
}

impl Armed {
    pub(super) fn new(rule: FaultRule) -> Self {
        Self { rule, seen: 0 }
    }

    /// Counts the request; the fault if it is its turn.
    pub(super) fn meet(&mut self, request: &Request) -> Option<Fault> {
        if !self.rule.when.fits(request) {
            return None;
        }
        self.seen += 1;
        let (nth, times) = (self.rule.when.nth, self.rule.when.times);
        (self.seen >= nth && self.seen - nth < times).then(|| self.rule.how.clone())
    }
}

#[cfg(test)]
mod tests {
    use hyper::{HeaderMap, Method};

    use super::*;

    fn hits(when: When) -> Vec<usize> {
        let mut armed = Armed::new(FaultRule { when, how: Fault::Hang });
        let lines = [
            (Method::GET, "/apis/batch/v1/namespaces/n/jobs"),
            (Method::POST, "/apis/batch/v1/namespaces/n/jobs"),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"),
            (Method::PATCH, "/apis/batch/v1/namespaces/n/jobs/j/status"),
            (Method::POST, "/api/v1/namespaces/n/configmaps"),
        ];
        let met = |(number, (method, uri)): (usize, &(Method, &str))| {
            let request = Request::read(method, &uri.parse().unwrap(), &HeaderMap::new());
            armed.meet(&request).map(|_| number)
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
    }
}
