//! The plan of an operation that only plans, in a ConfigMap, where the operation that applies it finds it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kubeon_api::labels;

use crate::job::JobContext;
use crate::job_object;
use crate::meta::MetaError;

/// The most bytes of a plan: a ConfigMap has 1 MiB, with its metadata.
const LARGEST: usize = 1_000_000;
/// The time limit of the write.
const SAVE_TIMEOUT: Duration = Duration::from_secs(100);

/// Why the plan was not saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SavePlanError {
    /// The program wrote none.
    #[error("the plan cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is too large for a ConfigMap.
    #[error("the plan has {0} bytes, and a ConfigMap holds {LARGEST}: change fewer hosts at a time")]
    Large(usize),
    /// The runner does not know its Job, or reaches no meta cluster.
    #[error("the plan cannot be saved: the runner does not know its Job")]
    NoJob,
    /// The meta cluster refused it.
    #[error("the plan cannot be saved: {0}")]
    Write(#[from] MetaError),
    /// The meta cluster did not answer in time, or a shutdown was requested.
    #[error("the plan cannot be saved: not in time")]
    Late,
}

/// Saves the plan in this file.
///
/// # Errors
/// When it cannot be read, is too large, or is not saved in time.
pub(crate) async fn save(job: &JobContext, file: &Path) -> Result<(), SavePlanError> {
    let plan = fs::read(file)?;
    if plan.len() > LARGEST {
        return Err(SavePlanError::Large(plan.len()));
    }
    let metadata = job_object::metadata(&job.settings, labels::JOB_PLAN_SUFFIX, &[]);
    let (Some(meta), Some(metadata)) = (&job.meta, metadata) else { return Err(SavePlanError::NoJob) };
    let map = ConfigMap {
        metadata,
        immutable: Some(true),
        binary_data: Some(BTreeMap::from([(labels::JOB_PLAN_KEY.to_owned(), ByteString(plan))])),
        ..ConfigMap::default()
    };
    tokio::select! {
        saved = meta.create_config_map(&map) => Ok(saved?),
        () = job.shutdown.deadline(SAVE_TIMEOUT) => Err(SavePlanError::Late),
    }
}
