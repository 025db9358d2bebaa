//! What the callers may have at the same time, so that no caller fills the memory of the gateway.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::CallerIdentity;
use crate::request_error::RequestError;

/// The most reads of records of steps at the same time; others wait. Decompressed, the records of one operation are up to 32 MiB.
const STEP_READS: usize = 2;

/// What the callers may have at the same time.
pub(crate) struct CallerLimits {
    connections: UserPlaces,
    logs_of_users: UserPlaces,
    logs: Arc<Semaphore>,
    most_logs: usize,
    step_reads: Arc<Semaphore>,
}

impl CallerLimits {
    /// Limits with this number of connections of a user, of logs that a user reads, and of logs that all users read.
    pub(crate) fn new(connections_per_user: usize, logs_per_user: usize, most_logs: usize) -> Self {
        Self {
            connections: UserPlaces::new(connections_per_user),
            logs_of_users: UserPlaces::new(logs_per_user),
            logs: Arc::new(Semaphore::new(most_logs)),
            most_logs,
            step_reads: Arc::new(Semaphore::new(STEP_READS)),
        }
    }

    /// A place for a connection of the caller.
    ///
    /// # Errors
    /// When the caller has the most connections.
    pub(crate) fn connection(&self, caller: &CallerIdentity) -> Result<UserPlace, RequestError> {
        self.connections.take(caller).ok_or_else(|| {
            RequestError::too_many(format!(
                "{} {} connections open, which is the most for one user; end streams that are not needed, or the installer of the gateway raises --connections-per-user",
                subject(caller),
                self.connections.most
            ))
        })
    }

    /// A place for a log that the caller reads.
    ///
    /// # Errors
    /// When the caller, or all callers together, read the most logs.
    pub(crate) fn log(&self, caller: &CallerIdentity) -> Result<LogPlace, RequestError> {
        let user = self.logs_of_users.take(caller).ok_or_else(|| {
            RequestError::too_many(format!(
                "{} {} logs open, which is the most for one user; end one of them, or the installer of the gateway raises --logs-per-user",
                subject(caller),
                self.logs_of_users.most
            ))
        })?;
        let all = self.logs.clone().try_acquire_owned().map_err(|_| {
            RequestError::unavailable(format!(
                "{} logs are open, which is the most for all users; try again later, or the installer of the gateway raises --logs",
                self.most_logs
            ))
        })?;
        Ok(LogPlace { _user: user, _all: all })
    }

    /// Waits for a place for reading records of steps. The semaphore is never closed.
    pub(crate) async fn step_read(&self) -> Option<OwnedSemaphorePermit> {
        self.step_reads.clone().acquire_owned().await.ok()
    }
}

/// A log that a caller reads.
pub(crate) struct LogPlace {
    _user: UserPlace,
    _all: OwnedSemaphorePermit,
}

/// Counts what each user has. Users who have nothing are not remembered.
#[derive(Clone)]
struct UserPlaces {
    most: usize,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

impl UserPlaces {
    fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// `None` when the user has the most.
    fn take(&self, caller: &CallerIdentity) -> Option<UserPlace> {
        let user = counted_as(&caller.name);
        let mut taken = self.taken.lock();
        let count = taken.entry(user.to_owned()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(UserPlace { user: user.to_owned(), places: self.clone() })
    }
}

/// One of the things that a user may have. It is given back when it is dropped.
pub(crate) struct UserPlace {
    user: String,
    places: UserPlaces,
}

impl UserPlace {
    /// Whether it is one of this caller.
    pub(crate) fn is_of(&self, caller: &CallerIdentity) -> bool {
        self.user == counted_as(&caller.name)
    }
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(count) = taken.get_mut(&self.user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(&self.user);
            }
        }
    }
}

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user whose places are taken. Who may create one service account in a namespace may create many, so they count as one user.
fn counted_as(user: &str) -> &str {
    if !user.starts_with(SERVICE_ACCOUNT) {
        return user;
    }
    user.rsplit_once(':').map_or(user, |(namespace, _)| namespace)
}

/// The caller, as the beginning of a sentence.
fn subject(caller: &CallerIdentity) -> String {
    match counted_as(&caller.name).strip_prefix(SERVICE_ACCOUNT) {
        Some(namespace) => format!("the service accounts of namespace {namespace} have"),
        None => format!("user {} has", caller.name),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn named(name: &str) -> CallerIdentity {
        CallerIdentity { name: name.to_owned(), ..CallerIdentity::default() }
    }

    #[test]
    fn a_user_has_a_number_of_connections_and_others_have_theirs() {
        let limits = CallerLimits::new(2, 1, 1);
        let first = limits.connection(&named("alice")).unwrap();
        let _second = limits.connection(&named("alice")).unwrap();
        let refused = limits.connection(&named("alice")).err().unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.detail.starts_with("user alice has 2 connections open"), "{}", refused.detail);
        let other = limits.connection(&named("bob")).unwrap();
        assert!(other.is_of(&named("bob")) && !other.is_of(&named("alice")));
        drop(first);
        let _third = limits.connection(&named("alice")).unwrap();
        drop(other);
        assert_eq!(limits.connections.taken.lock().len(), 1, "who has nothing is not remembered");
    }

    #[test]
    fn the_service_accounts_of_a_namespace_are_one_user() {
        let limits = CallerLimits::new(1, 1, 1);
        let _place = limits.connection(&named("system:serviceaccount:team-a:one")).unwrap();
        let refused = limits.connection(&named("system:serviceaccount:team-a:two")).err().unwrap();
        assert!(
            refused.detail.starts_with("the service accounts of namespace team-a have 1 connections"),
            "{}",
            refused.detail
        );
        limits.connection(&named("system:serviceaccount:team-b:one")).unwrap();
        limits.connection(&named("team-a")).unwrap();
    }

    #[test]
    fn all_users_together_read_a_number_of_logs() {
        let limits = CallerLimits::new(9, 2, 3);
        let alice = [(); 2].map(|()| limits.log(&named("alice")).unwrap());
        assert_eq!(limits.log(&named("alice")).err().unwrap().status, StatusCode::TOO_MANY_REQUESTS);
        let bob = limits.log(&named("bob")).unwrap();
        let refused = limits.log(&named("bob")).err().unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.detail.starts_with("3 logs are open"), "{}", refused.detail);
        drop(alice);
        let _second = limits.log(&named("bob")).unwrap();
        drop(bob);
        limits.log(&named("bob")).unwrap();
    }
}
