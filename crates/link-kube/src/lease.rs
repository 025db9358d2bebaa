//! Leader election with a `Lease`. Decision 29 compares it with the crates for it.
//!
//! A holder that cannot renew the lease gives up before another process may take it. Whether another holder
//! has stopped is decided with this process's own clock, from the time when it last observed a change of the
//! lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::Instant;

use crate::error::LinkError;

/// How long a lease is valid after its last renewal.
const VALID_FOR: Duration = Duration::from_secs(15);
/// The time without a renewal after which the holder gives up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
/// The pause between two attempts or renewals.
const PAUSE: Duration = Duration::from_secs(2);
/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(4);

/// A lease that can be acquired.
#[derive(Clone)]
pub struct Lease {
    api: Api<Object>,
    name: String,
    identity: String,
}

/// A lease that this process holds, as it was last written.
pub struct HeldLease {
    lease: Lease,
    object: Object,
    /// The begin of the last successful request: others may see its result long before this process does.
    renewed: Instant,
}

/// Why a lease is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// Another process holds it.
    Taken,
    /// It could not be renewed in time.
    NotRenewed,
}

impl Lease {
    /// The lease with this name. `identity` must be different for every process.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity: identity.to_owned() }
    }

    /// Waits until the lease is acquired. Errors are logged and retried without limit.
    pub async fn acquire(&self) -> HeldLease {
        let mut last_change: Option<(String, Instant)> = None;
        loop {
            let renewed = Instant::now();
            match self.try_once(&mut last_change).await {
                Ok(Some(object)) => return HeldLease { lease: self.clone(), object, renewed },
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the lease cannot be acquired; it is retried"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_once(
        &self,
        last_change: &mut Option<(String, Instant)>,
    ) -> Result<Option<Object>, LinkError> {
        let Some(current) = bounded("read the lease", self.api.get_opt(&self.name)).await? else {
            let fresh = Object {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(None)),
            };
            return acquired(
                bounded("create the lease", self.api.create(&PostParams::default(), &fresh)).await,
            );
        };
        let version = current.metadata.resource_version.clone().unwrap_or_default();
        let holder = current.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let since = match last_change {
            Some((before, since)) if *before == version => *since,
            _ => {
                *last_change = Some((version, Instant::now()));
                Instant::now()
            }
        };
        let is_free = holder.is_empty() || holder == self.identity || since.elapsed() > validity(&current);
        if !is_free {
            return Ok(None);
        }
        let mut next = current;
        next.spec = Some(self.spec(next.spec.as_ref()));
        acquired(bounded("take the lease", self.api.replace(&self.name, &PostParams::default(), &next)).await)
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let is_own = before.is_some_and(|spec| spec.holder_identity.as_deref() == Some(&self.identity));
        let changes = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(VALID_FOR.as_secs()).ok(),
            acquire_time: before
                .filter(|_| is_own)
                .and_then(|spec| spec.acquire_time.clone())
                .or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if is_own { changes } else { changes.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

fn validity(lease: &Object) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(VALID_FOR, Duration::from_secs)
}

/// A conflict means that another process was faster, which is not an error.
fn acquired(answer: Result<Object, LinkError>) -> Result<Option<Object>, LinkError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(LinkError::Refused { code: 409, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn bounded<T>(
    action: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, LinkError> {
    let answer = tokio::time::timeout(TIMEOUT, request).await;
    let answer = answer.map_err(|_| LinkError::Silent { action: action.to_owned(), after: TIMEOUT })?;
    answer.map_err(|error| LinkError::of(action, error))
}

impl HeldLease {
    /// Renews the lease until that fails for too long or another process has taken it.
    pub async fn renew_until_lost(&mut self) -> LeaseEnd {
        loop {
            let give_up = self.renewed + GIVE_UP_AFTER;
            match tokio::time::timeout_at(give_up, self.try_renew()).await {
                Ok(true) => {}
                Ok(false) => return LeaseEnd::Taken,
                Err(_) => return LeaseEnd::NotRenewed,
            }
        }
    }

    /// Tries once to renew the lease, after a pause. Returns whether this process may still hold it.
    async fn try_renew(&mut self) -> bool {
        tokio::time::sleep(PAUSE).await;
        let begin = Instant::now();
        let mut next = self.object.clone();
        next.spec = Some(self.lease.spec(self.object.spec.as_ref()));
        let posted = PostParams::default();
        let replaced = self.lease.api.replace(&self.lease.name, &posted, &next);
        match bounded("renew the lease", replaced).await {
            Ok(object) => {
                self.object = object;
                self.renewed = begin;
                true
            }
            Err(LinkError::Refused { code: 409, .. }) => self.reread().await,
            Err(error) => {
                tracing::warn!(%error, "the lease cannot be renewed; it is retried");
                true
            }
        }
    }

    /// Reads the lease and whether this process holds it. When the answer to a renewal was lost, the stored
    /// version is outdated.
    async fn reread(&mut self) -> bool {
        match bounded("read the lease", self.lease.api.get(&self.lease.name)).await {
            Ok(object) => {
                let holder = object.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                let is_own = holder.as_deref() == Some(&self.lease.identity);
                self.object = object;
                is_own
            }
            // The holder is unknown: the time since the last renewal decides.
            Err(_) => true,
        }
    }

    /// Releases the lease, so that the next leader does not wait for its expiry.
    ///
    /// # Errors
    /// When the lease cannot be written; it then expires by itself.
    pub async fn release(mut self) -> Result<(), LinkError> {
        match self.try_release().await {
            // A renewal was in flight at shutdown.
            Err(LinkError::Refused { code: 409, .. }) if self.reread().await => self.try_release().await,
            answer => answer,
        }
    }

    async fn try_release(&self) -> Result<(), LinkError> {
        let mut next = self.object.clone();
        if let Some(spec) = &mut next.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let posted = PostParams::default();
        let replaced = self.lease.api.replace(&self.lease.name, &posted, &next);
        bounded("release the lease", replaced).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use tokio::time::sleep;

    use super::*;

    /// A lease that is held since now, whose API server takes a second for each of the first `answers` renewals and
    /// then answers no more.
    fn held(answers: usize) -> HeldLease {
        let count = Arc::new(AtomicUsize::new(0));
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let count = Arc::clone(&count);
            async move {
                if count.fetch_add(1, Ordering::Relaxed) >= answers {
                    std::future::pending::<()>().await;
                }
                let body = request.into_body().collect().await.unwrap().to_bytes();
                sleep(Duration::from_secs(1)).await;
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(body.to_vec())))
            }
        });
        let lease = Lease::new(Client::new(server, "default"), "default", "lease", "self");
        let object = Object { spec: Some(lease.spec(None)), ..Object::default() };
        HeldLease { lease, object, renewed: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_gives_up_before_another_process_may_take_the_lease() {
        for answers in [0, 1, 5] {
            let begin = Instant::now();
            assert_eq!(held(answers).renew_until_lost().await, LeaseEnd::NotRenewed);
            // Each renewal follows a pause of two seconds; others may see it as soon as it was sent.
            let last_sent = match answers {
                0 => 0,
                answers => 3 * answers as u64 - 1,
            };
            assert_eq!(begin.elapsed().as_secs(), last_sent + GIVE_UP_AFTER.as_secs());
        }
    }
}
