//! Removes the certificate that the kubelet got from the cluster.

use kubeon_wire::StepFailure;

use crate::durable::remove_file;
use crate::job::{Job, StepEffect};
use crate::paths;

/// The unit of the kubelet.
const KUBELET: &str = "kubelet.service";

/// Stops the kubelet and removes its certificate and its kubeconfig: without them it requests a certificate when it starts.
/// The pods run on.
///
/// # Errors
/// If the kubelet does not stop, or a file cannot be removed.
pub fn forget(job: &Job<'_>) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    job.host.services.stop(&[KUBELET.to_owned()], job.deadline)?;
    let mut changed = false;
    for path in [paths::KUBELET_OWN, paths::KUBELET_KUBECONFIG] {
        changed |= remove_file(&root.at(path))?;
    }
    Ok(StepEffect { changed, ..StepEffect::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn the_kubelet_is_stopped_before_its_certificate_goes() {
        let bench = Bench::new();
        bench.write(paths::KUBELET_OWN, "certificate");
        bench.write(paths::KUBELET_KUBECONFIG, "kubeconfig");
        bench.write(paths::KUBELET_BOOTSTRAP, "kept");
        assert!(forget(&bench.job()).unwrap().changed);
        assert_eq!(*bench.services.calls.lock(), ["stop kubelet.service"]);
        let exists = |path: &str| bench.host.root.at(path).exists();
        assert!(!exists(paths::KUBELET_OWN) && !exists(paths::KUBELET_KUBECONFIG));
        assert!(exists(paths::KUBELET_BOOTSTRAP));
        assert!(!forget(&bench.job()).unwrap().changed, "the second time nothing changes");
    }
}
