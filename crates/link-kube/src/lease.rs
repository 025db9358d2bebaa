//! One leader at a time, by a `Lease`. Written here because the crates for it that there are follow older clients.
//!
//! A holder that could not renew gives up before others may take over; whether another holder is gone is judged by this
//! process's own clock, from when it last saw the lease change.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::Instant;

use crate::error::LinkError;

/// How long a lease holds after its last renewal.
const HOLDS: Duration = Duration::from_secs(15);
/// After how long without a renewal the holder gives up.
const GIVES_UP: Duration = Duration::from_secs(10);
/// Between two looks or renewals.
const PAUSE: Duration = Duration::from_secs(2);
/// For one request.
const TIMEOUT: Duration = Duration::from_secs(4);

/// A lease that may be had.
#[derive(Clone)]
pub struct Lease {
    api: Api<Object>,
    name: String,
    identity: String,
}

/// A lease that is held, as it was last written.
pub struct HeldLease {
    lease: Lease,
    object: Object,
    renewed: Instant,
}

/// Why a lease is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// Another holder has it.
    Taken,
    /// It could not be renewed in time.
    NotRenewed,
}

impl Lease {
    /// The lease of this name. `identity` must be another for every process.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity: identity.to_owned() }
    }

    /// Waits until the lease is had. Failures are told in the log and tried again, as long as it takes.
    pub async fn acquire(&self) -> HeldLease {
        let mut seen: Option<(String, Instant)> = None;
        loop {
            match self.try_once(&mut seen).await {
                Ok(Some(object)) => {
                    return HeldLease { lease: self.clone(), object, renewed: Instant::now() };
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the lease cannot be asked for"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_once(&self, seen: &mut Option<(String, Instant)>) -> Result<Option<Object>, LinkError> {
        let Some(current) = bounded("read the lease", self.api.get_opt(&self.name)).await? else {
            let fresh = Object {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(None)),
            };
            return taken(bounded("make the lease", self.api.create(&PostParams::default(), &fresh)).await);
        };
        let version = current.metadata.resource_version.clone().unwrap_or_default();
        let holder = current.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let since = match seen {
            Some((before, since)) if *before == version => *since,
            _ => {
                *seen = Some((version, Instant::now()));
                Instant::now()
            }
        };
        let free = holder.is_empty() || holder == self.identity || since.elapsed() > holds(&current);
        if !free {
            return Ok(None);
        }
        let mut next = current;
        next.spec = Some(self.spec(next.spec.as_ref()));
        taken(bounded("take the lease", self.api.replace(&self.name, &PostParams::default(), &next)).await)
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours = before.is_some_and(|spec| spec.holder_identity.as_deref() == Some(&self.identity));
        let changes = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(HOLDS.as_secs()).ok(),
            acquire_time: before
                .filter(|_| ours)
                .and_then(|spec| spec.acquire_time.clone())
                .or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours { changes } else { changes.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

fn holds(lease: &Object) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(HOLDS, Duration::from_secs)
}

/// Another one was faster: that is no error.
fn taken(answer: Result<Object, LinkError>) -> Result<Option<Object>, LinkError> {
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
    /// Renews the lease until that is no longer possible.
    pub async fn keep(&mut self) -> LeaseEnd {
        loop {
            tokio::time::sleep(PAUSE).await;
            let mut next = self.object.clone();
            next.spec = Some(self.lease.spec(self.object.spec.as_ref()));
            let posted = PostParams::default();
            let replaced = self.lease.api.replace(&self.lease.name, &posted, &next);
            match bounded("renew the lease", replaced).await {
                Ok(object) => {
                    self.object = object;
                    self.renewed = Instant::now();
                }
                Err(LinkError::Refused { code: 409, .. }) => {
                    if !self.still_ours().await {
                        return LeaseEnd::Taken;
                    }
                }
                Err(error) => tracing::warn!(%error, "the lease is not renewed"),
            }
            if self.renewed.elapsed() > GIVES_UP {
                return LeaseEnd::NotRenewed;
            }
        }
    }

    /// A renewal whose answer was lost makes the version that is known here an old one.
    async fn still_ours(&mut self) -> bool {
        match bounded("read the lease", self.lease.api.get(&self.lease.name)).await {
            Ok(object) => {
                let holder = object.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                let ours = holder.as_deref() == Some(&self.lease.identity);
                self.object = object;
                ours
            }
            // Nobody knows: the bound on the time since the last renewal decides.
            Err(_) => true,
        }
    }

    /// Gives the lease back, so that the next leader need not wait for its end.
    ///
    /// # Errors
    /// When it cannot be written; it then ends by itself.
    pub async fn release(mut self) -> Result<(), LinkError> {
        match self.give_back().await {
            // A renewal that was under way when the end was asked for.
            Err(LinkError::Refused { code: 409, .. }) if self.still_ours().await => self.give_back().await,
            answer => answer,
        }
    }

    async fn give_back(&self) -> Result<(), LinkError> {
        let mut next = self.object.clone();
        if let Some(spec) = &mut next.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let posted = PostParams::default();
        let replaced = self.lease.api.replace(&self.lease.name, &posted, &next);
        bounded("give the lease back", replaced).await.map(|_| ())
    }
}
