//! The log of a runner and the records of its steps, in a ConfigMap. Kubernetes removes the pod of a Job that is suspended,
//! deleted or past its deadline together with its log, and no operator may be running at that time to read it. The pod that
//! continues after a pause, or after the loss of a pod, begins with both.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use k8s_openapi::api::core::v1::ConfigMap;
use kubeon_api::labels;
use kubeon_operation_log::{StoredLog, decompressed, decompressed_steps};

use crate::args::RunnerSettings;
use crate::job::JobContext;
use crate::job_object;
use crate::log::RunnerLog;

/// The time limit of the write; the deadline of a shutdown comes earlier.
const SAVE_TIMEOUT: Duration = Duration::from_secs(100);

/// Saves log and records. If that fails, the operator saves the log of the pod while that exists.
pub(crate) async fn save(job: &JobContext) {
    let Some(meta) = &job.meta else { return };
    let map = match config_map(&job.settings, &job.log) {
        Ok(Some(map)) => map,
        Ok(None) => return,
        Err(error) => return job.log.line(&format!("cannot save the log: {error}")),
    };
    let saved = tokio::select! {
        saved = meta.create_config_map(&map) => saved.map_err(|error| error.to_string()),
        () = job.shutdown.deadline(SAVE_TIMEOUT) => Err("not in time".to_owned()),
    };
    if let Err(error) = saved {
        job.log.line(&format!("cannot save the log: {error}"));
    }
}

/// Writes the log that the pod before this one left, so that the log of this pod is the whole one. The same for the records.
pub(crate) fn repeat(folder: &Path, log: &RunnerLog) {
    let steps = folder.join(labels::JOB_STEPS_KEY);
    let earlier_steps = fs::read(&steps).and_then(|stored| decompressed_steps(&stored));
    if let Some(records) = found(earlier_steps, &steps, log) {
        log.steps.repeat(records);
    }
    let whole = folder.join(labels::JOB_WHOLE_LOG_KEY);
    let short = folder.join(labels::JOB_LOG_KEY);
    let earlier = found(fs::read(&whole).and_then(|stored| decompressed(&stored)), &whole, log);
    if let Some(earlier) = earlier.or_else(|| found(fs::read_to_string(&short), &short, log)) {
        log.repeat(earlier.as_bytes());
        log.line("another pod continues here");
    }
}

/// What a file of the earlier pod holds; `None` when there is none, or it cannot be read, which the log says.
fn found<T>(read: io::Result<T>, file: &Path, log: &RunnerLog) -> Option<T> {
    match read {
        Ok(content) => Some(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            log.line(&format!("cannot read {}: {error}", file.display()));
            None
        }
    }
}

/// The ConfigMap; `None` when the runner does not know its Job.
fn config_map(settings: &RunnerSettings, log: &RunnerLog) -> io::Result<Option<ConfigMap>> {
    let steps = log.steps.stored().unwrap_or_else(|error| {
        log.line(&format!("the records of the steps cannot be saved: {error}"));
        None
    });
    let stored = log.steps.shown_in(StoredLog::new(&log.recorded.last_lines(), steps)?)?;
    // The kubelet gives a pod its name as the host name.
    let pod = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let annotations = [(labels::POD, pod), stored.annotation()];
    let metadata = job_object::metadata(settings, labels::JOB_LOG_SUFFIX, &annotations);
    Ok(metadata.map(|metadata| ConfigMap {
        metadata,
        immutable: Some(true),
        data: Some(stored.data),
        binary_data: Some(stored.binary_data).filter(|values| !values.is_empty()),
    }))
}
