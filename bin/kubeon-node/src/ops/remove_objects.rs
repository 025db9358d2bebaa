//! Deletes objects that the cluster no longer uses.

use std::time::Duration;

use kubeon_wire::StepFailure;

use super::node::until_accepted;
use crate::api::{Api, check_path};
use crate::cluster_record;
use crate::job::{Job, StepEffect};

/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Deletes the objects, and then the record of the step that applied them: a later step that applies them again must run, and an
/// interrupted removal is repeated.
///
/// # Errors
/// If the API server does not accept a deletion in time.
pub fn run(job: &Job<'_>, paths: &[String], step: &str) -> Result<StepEffect, StepFailure> {
    paths.iter().try_for_each(|path| check_path(path))?;
    let api = Api::local(job.host)?;
    let mut changed = false;
    for path in paths {
        let problem = format!("{path} is not deleted");
        let answer = until_accepted(job, &problem, || api.delete(path, CALL_TIMEOUT.min(job.left())))?;
        changed |= answer.status != 404;
    }
    cluster_record::forget(job, step)?;
    Ok(StepEffect { changed, ..StepEffect::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    const SERVICE: &str = "/api/v1/namespaces/kube-system/services/apiserver";

    #[test]
    fn the_record_goes_after_the_objects() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |method, _, number| match (method, number) {
            ("DELETE", 2..) => Reply::Json(404, "{}".to_owned()),
            _ => Reply::Json(200, "{}".to_owned()),
        });
        let remove = || run(&bench.job(), &[SERVICE.to_owned()], "control/updater").unwrap().changed;
        assert!(remove());
        assert!(!remove(), "the second time nothing changes");
        let sent = requests.lock();
        let of: Vec<_> = sent.iter().map(|(method, path, _)| (method.as_str(), path.as_str())).collect();
        assert_eq!(of[0], ("DELETE", SERVICE));
        assert_eq!(of[1], ("PATCH", "/api/v1/namespaces/kube-system?fieldManager=kubeon"));
        assert_eq!(sent[1].2, r#"{"metadata":{"annotations":{"steps.kubeon.io/control.updater":null}}}"#);
        assert!(run(&bench.job(), &["/etc/passwd".to_owned()], "x").is_err());
    }

    #[test]
    fn a_refused_deletion_keeps_the_record() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |_, _, _| Reply::Json(403, r#"{"message": "not you"}"#.to_owned()));
        let failure = run(&bench.job(), &[SERVICE.to_owned()], "control/updater").unwrap_err();
        assert_eq!(failure.cause, format!("{SERVICE} is not deleted: refused (403): not you"));
        assert_eq!(requests.lock().len(), 1);
    }
}
