//! The log of a Job: of its pod while that exists, afterwards the stored copy. And the stored records of its steps.

use futures::io::Cursor;
use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{GetParams, ListParams, LogParams, ObjectList};
use kube::core::{PartialObjectMeta, Request};
use kube::{Resource as _, ResourceExt as _};
use kubeon_api::{StepRecord, labels};
use kubeon_operation_log::{decompressed_steps, whole_log};
use kubeon_operations::names;
use tokio::sync::OwnedSemaphorePermit;

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::limits::LogPlace;
use crate::log_lines::{LogParts, log_parts};
use crate::request_error::RequestError;

/// The most pods of a Job that are looked at. The operator's Jobs have a few.
const MOST_PODS: u32 = 100;

/// Which part of a log is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogRange {
    /// Whether to wait for further lines until the pod ends.
    pub follow: bool,
    /// Only the last lines.
    pub tail: Option<i64>,
    /// Only lines of the last seconds; of a stored log all or none, by the time of its end.
    pub since_seconds: Option<i64>,
}

/// The log of a Job, read as a caller.
pub(crate) struct JobLog<'a> {
    gateway: &'a Gateway,
    caller: &'a Caller,
    namespace: String,
    source: LogSource,
    place: LogPlace,
}

enum LogSource {
    Pod(String),
    /// The text, and when it was stored at the end of its Job.
    Stored(String, Option<Timestamp>),
}

impl<'a> JobLog<'a> {
    /// Finds the log.
    ///
    /// # Errors
    /// When the caller may not read it or reads too many logs, or neither pod nor copy exists.
    pub(crate) async fn find(
        (gateway, caller): (&'a Gateway, &'a Caller),
        namespace: &str,
        job: &str,
    ) -> Result<Self, RequestError> {
        let place = gateway.limits.log(&caller.identity)?;
        let of_job = ListParams::default().labels(&format!("job-name={job}")).limit(MOST_PODS);
        let pods = Request::new(Pod::url_path(&(), Some(namespace))).list_metadata(&of_job)?;
        let pods: ObjectList<PartialObjectMeta<Pod>> = gateway.meta_api.send(caller, pods).await?;
        let newest = pods.items.into_iter().max_by_key(|pod| pod.creation_timestamp());
        let source = match newest {
            Some(pod) => LogSource::Pod(pod.name_any()),
            None => {
                let (text, at) = stored((gateway, caller), namespace, job).await?;
                LogSource::Stored(text, at)
            }
        };
        Ok(Self { gateway, caller, namespace: namespace.to_owned(), source, place })
    }

    /// Its lines, at most 16 MiB of them.
    pub(crate) async fn parts(self, range: &LogRange) -> Result<LogParts, RequestError> {
        let pod = match self.source {
            LogSource::Pod(pod) => pod,
            LogSource::Stored(text, at) => {
                let none = is_older(at, range.since_seconds, Timestamp::now());
                let start = if none { text.len() } else { start_of_last_lines(&text, range.tail) };
                let mut bytes = Cursor::new(text);
                bytes.set_position(start as u64);
                return Ok(log_parts(Box::pin(bytes), self.place));
            }
        };
        let parameters = LogParams {
            follow: range.follow,
            tail_lines: range.tail,
            since_seconds: range.since_seconds,
            ..LogParams::default()
        };
        let request = Request::new(Pod::url_path(&(), Some(&self.namespace))).logs(&pod, &parameters)?;
        let bytes = self.gateway.meta_api.stream(self.caller, request).await?;
        Ok(log_parts(Box::pin(bytes), self.place))
    }
}

/// Whether everything was written before the last seconds. A stored log has no times of lines.
fn is_older(stored: Option<Timestamp>, seconds: Option<i64>, now: Timestamp) -> bool {
    stored.zip(seconds).is_some_and(|(at, seconds)| now.as_second().saturating_sub(at.as_second()) > seconds)
}

/// Where the last lines of a text begin.
fn start_of_last_lines(text: &str, most: Option<i64>) -> usize {
    let Some(most) = most.and_then(|most| usize::try_from(most).ok()) else { return 0 };
    let Some(others) = most.checked_sub(1) else { return text.len() };
    let all = text.strip_suffix('\n').unwrap_or(text);
    all.rmatch_indices('\n').nth(others).map_or(0, |(at, _)| at + 1)
}

async fn stored(
    access: (&Gateway, &Caller),
    namespace: &str,
    job: &str,
) -> Result<(String, Option<Timestamp>), RequestError> {
    let map = stored_map(access, namespace, job).await?;
    let map = map.ok_or_else(|| {
        RequestError::absent(format!("get job {job} logs failed with: its pod and its stored log are gone"))
    })?;
    let text = whole_log(&map).map_err(|error| damaged("the log", (namespace, job), &error))?;
    Ok((text, map.creation_timestamp().map(|created| created.0)))
}

/// The ConfigMap with the log of a Job and the records of its steps; `None` while there is none.
async fn stored_map(
    (gateway, caller): (&Gateway, &Caller),
    namespace: &str,
    job: &str,
) -> Result<Option<ConfigMap>, RequestError> {
    let request = Request::new(ConfigMap::url_path(&(), Some(namespace)))
        .get(&names::log(job), &GetParams::default())?;
    match gateway.meta_api.send::<ConfigMap>(caller, request).await {
        Ok(map) => Ok(Some(map)),
        Err(error) if error.status == StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// The stored records of the steps of a Job.
#[derive(Debug, Default)]
pub(crate) struct StoredSteps {
    /// In the order of their start.
    pub records: Vec<StepRecord>,
    /// They take memory as long as they exist.
    _place: Option<OwnedSemaphorePermit>,
}

/// The stored records of the steps of a Job; none while the Job runs.
///
/// # Errors
/// When the caller may not read them, or they are damaged.
pub(crate) async fn step_records(
    access: (&Gateway, &Caller),
    namespace: &str,
    job: &str,
) -> Result<StoredSteps, RequestError> {
    let map = stored_map(access, namespace, job).await?.unwrap_or_default();
    let Some(stored) = map.binary_data.unwrap_or_default().remove(labels::JOB_STEPS_KEY) else {
        return Ok(StoredSteps::default());
    };
    let place = access.0.limits.step_read().await;
    let records = decompressed_steps(&stored.0)
        .map_err(|error| damaged("the records of steps", (namespace, job), &error))?;
    Ok(StoredSteps { records, _place: place })
}

fn damaged(what: &str, (namespace, job): (&str, &str), error: &std::io::Error) -> RequestError {
    RequestError::unavailable(format!(
        "{what} in ConfigMap {namespace}/{} cannot be read: {error}",
        names::log(job)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_log_includes_its_last_line_also_without_a_line_break() {
        let last = |text: &'static str, most| &text[start_of_last_lines(text, most)..];
        assert_eq!(last("a\nb\nc", None), "a\nb\nc");
        assert_eq!(last("a\nb\nc", Some(1)), "c");
        assert_eq!(last("a\nb\nc\n", Some(2)), "b\nc\n");
        assert_eq!(last("a\n\n\n", Some(2)), "\n\n");
        for most in [3, 4, i64::MAX] {
            assert_eq!(last("a\nb\nc\n", Some(most)), "a\nb\nc\n");
        }
        assert_eq!((last("a\nb\n", Some(0)), last("", Some(2)), last("\n", Some(1))), ("", "", "\n"));
    }

    #[test]
    fn a_stored_log_is_as_old_as_its_end() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let older = |since| is_older(Some(at(1000)), since, at(1060));
        assert!(older(Some(59)) && !older(Some(60)) && !older(None));
        assert!(!is_older(None, Some(1), at(1060)), "an unknown time hides nothing");
    }
}
