//! Suspended Jobs: their pods end.

use k8s_openapi::api::batch::v1::Job;

use crate::object::{JobSpecPatch, ObjectPatch};
use crate::write::{Change, ObjectKind, ObjectRef, Write};

/// Why a Job is stopped: a reason in CamelCase, and a message for the user.
pub(crate) type StopReason = (&'static str, String);

/// Why a Job is suspended that will not continue.
pub(crate) const STOPPED: &str = "the pod gets SIGTERM, so that the hooks that always run are executed";

/// Suspends a Job; `None` when it is already suspended. `operation` is `None` when it was deleted.
pub(crate) fn suspend_job(job: &Job, operation: Option<&str>, why: &str) -> Option<Write> {
    if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
        return None;
    }
    let suspended = JobSpecPatch { suspend: Some(true), ..JobSpecPatch::default() };
    Some(Write { operation: operation.map(str::to_owned), ..job_write(job, why, suspended) })
}

/// A change of a Job's spec, for no operation.
pub(super) fn job_write(job: &Job, why: &str, spec: JobSpecPatch) -> Write {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Write {
        why: why.to_owned(),
        target: ObjectRef::new(ObjectKind::Job, text(&job.metadata.namespace), text(&job.metadata.name)),
        change: Change::Merge(ObjectPatch { metadata: None, spec: Some(spec) }),
        operation: None,
    }
}
