//! The log of a runner and the records of its steps, in a ConfigMap. Kubernetes removes the pod of a Job that is suspended,
//! deleted or past its deadline together with its log, and no operator may be running at that time to read it. The pod that
//! continues after a pause, or after the loss of a pod, begins with both.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kubeon_api::labels;

use crate::args::RunnerSettings;
use crate::job::JobContext;
use crate::job_object;
use crate::log::RunnerLog;

/// The time limit of the write; the deadline of a shutdown comes earlier.
const SAVE_TIMEOUT: Duration = Duration::from_secs(100);

/// Saves log and records. If that fails, the operator saves the log of the pod while that exists.
pub(crate) async fn save(job: &JobContext) {
    let Some(meta) = &job.meta else { return };
    let Some(map) = config_map(&job.settings, &job.log) else { return };
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
    repeat_steps(&folder.join(labels::JOB_STEPS_KEY), log);
    let file = folder.join(labels::JOB_LOG_KEY);
    match fs::read(&file) {
        Ok(earlier) => {
            log.repeat(&earlier);
            log.line("another pod continues here");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => log.line(&format!("cannot read {}: {error}", file.display())),
    }
}

fn repeat_steps(file: &Path, log: &RunnerLog) {
    let repeated = fs::read(file).and_then(|earlier| log.steps.repeat(&earlier));
    match repeated {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log.line(&format!("cannot read {}: {error}", file.display()));
        }
        _ => {}
    }
}

/// The ConfigMap; `None` when the runner does not know its Job.
fn config_map(settings: &RunnerSettings, log: &RunnerLog) -> Option<ConfigMap> {
    let steps = log.steps.stored().unwrap_or_else(|error| {
        log.line(&format!("the records of the steps cannot be saved: {error}"));
        None
    });
    // The kubelet gives a pod its name as the host name.
    let pod = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Some(ConfigMap {
        metadata: job_object::metadata(settings, labels::JOB_LOG_SUFFIX, &[(labels::POD, pod)])?,
        immutable: Some(true),
        data: Some(BTreeMap::from([(labels::JOB_LOG_KEY.to_owned(), log.recorded.last_lines())])),
        binary_data: steps
            .map(|steps| BTreeMap::from([(labels::JOB_STEPS_KEY.to_owned(), ByteString(steps))])),
    })
}
