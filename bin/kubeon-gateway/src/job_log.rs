//! The log of a Job: of its pod while that exists, afterwards the stored copy. And the stored records of its steps.

use futures::io::{AsyncBufReadExt as _, AsyncReadExt as _};
use futures::stream::{BoxStream, StreamExt as _, iter};
use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{GetParams, ListParams, LogParams, ObjectList};
use kube::core::Request;
use kube::{Resource as _, ResourceExt as _};
use kubeon_api::{StepRecord, labels};
use kubeon_operation_log::{decompressed_steps, whole_log};
use kubeon_operations::names;

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::request_error::RequestError;

/// The longest log in bytes. A longer one is cut at its end.
const LIMIT: u64 = 16 * 1024 * 1024;

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
    /// When the caller may not read it, or neither pod nor copy exists.
    pub(crate) async fn find(
        (gateway, caller): (&'a Gateway, &'a Caller),
        namespace: &str,
        job: &str,
    ) -> Result<Self, RequestError> {
        let pods = Request::new(Pod::url_path(&(), Some(namespace)))
            .list(&ListParams::default().labels(&format!("job-name={job}")))?;
        let pods: ObjectList<Pod> = gateway.meta_api.send(caller, pods).await?;
        let newest = pods.items.into_iter().max_by_key(|pod: &Pod| pod.creation_timestamp());
        let source = match newest {
            Some(pod) => LogSource::Pod(pod.name_any()),
            None => {
                let (text, at) = stored((gateway, caller), namespace, job).await?;
                LogSource::Stored(text, at)
            }
        };
        Ok(Self { gateway, caller, namespace: namespace.to_owned(), source })
    }

    /// The whole text, at most 16 MiB.
    pub(crate) async fn text(self, range: &LogRange) -> Result<String, RequestError> {
        let mut text = String::new();
        let mut lines = self.lines(range).await?;
        while let Some(line) = lines.next().await {
            text.push_str(&line?);
            text.push('\n');
        }
        Ok(text)
    }

    /// The lines, at most 16 MiB of them.
    pub(crate) async fn lines(
        self,
        range: &LogRange,
    ) -> Result<BoxStream<'static, Result<String, RequestError>>, RequestError> {
        let pod = match self.source {
            LogSource::Pod(pod) => pod,
            LogSource::Stored(text, at) => {
                let text = if is_older(at, range.since_seconds, Timestamp::now()) { "" } else { &text };
                return Ok(iter(last_lines(text, range.tail)).map(Ok).boxed());
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
        let interrupted = |error: std::io::Error| {
            tracing::debug!(%error, "a log was interrupted");
            RequestError::unavailable("the log was interrupted; try again")
        };
        Ok(bytes.take(LIMIT).lines().map(move |line| line.map_err(interrupted)).boxed())
    }
}

/// Whether everything was written before the last seconds. A stored log has no times of lines.
fn is_older(stored: Option<Timestamp>, seconds: Option<i64>, now: Timestamp) -> bool {
    stored.zip(seconds).is_some_and(|(at, seconds)| now.as_second().saturating_sub(at.as_second()) > seconds)
}

fn last_lines(text: &str, most: Option<i64>) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(lines.len());
    lines[lines.len().saturating_sub(most)..].iter().map(|line| (*line).to_owned()).collect()
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

/// The stored records of the steps of a Job, in the order of their start; none while the Job runs.
///
/// # Errors
/// When the caller may not read them, or they are damaged.
pub(crate) async fn step_records(
    access: (&Gateway, &Caller),
    namespace: &str,
    job: &str,
) -> Result<Vec<StepRecord>, RequestError> {
    let map = stored_map(access, namespace, job).await?.unwrap_or_default();
    let Some(stored) = map.binary_data.unwrap_or_default().remove(labels::JOB_STEPS_KEY) else {
        return Ok(Vec::new());
    };
    decompressed_steps(&stored.0).map_err(|error| damaged("the records of steps", (namespace, job), &error))
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
        assert_eq!(last_lines("a\nb\nc", None), ["a", "b", "c"]);
        assert_eq!(last_lines("a\nb\nc\n", Some(2)), ["b", "c"]);
        assert!(last_lines("", Some(2)).is_empty());
    }

    #[test]
    fn a_stored_log_is_as_old_as_its_end() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let older = |since| is_older(Some(at(1000)), since, at(1060));
        assert!(older(Some(59)) && !older(Some(60)) && !older(None));
        assert!(!is_older(None, Some(1), at(1060)), "an unknown time hides nothing");
    }
}
