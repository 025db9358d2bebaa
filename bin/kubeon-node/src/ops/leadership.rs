//! Ends the leadership of the controllers of a lost master. Until their leases expire, which takes up to fifteen seconds, no other
//! controllers act: a node that joins gets no network of pods.

use kubeon_api::HostName;
use kubeon_wire::StepFailure;
use serde_json::{Value, json};

use super::node::merge_observed;
use crate::api::Api;
use crate::job::{Job, StepEffect};

/// The programs of a control plane of which one leads.
const PROGRAMS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Gives up the leases that programs on the host of this node hold. Their names begin with the host's, so the lease of a host with another
/// name than its node is left to expire.
///
/// # Errors
/// If the API server does not accept it in time.
pub fn end(job: &Job<'_>, node: &HostName) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let mut changed = false;
    for program in PROGRAMS {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{program}");
        let problem = format!("the lease of {program} on {node} is not given up");
        changed |= merge_observed(job, (&api, &path), &problem, |lease| given_up(lease, node))?.changed;
    }
    Ok(StepEffect { changed, ..StepEffect::default() })
}

/// The patch with which a holder gives up its lease; `None` if another one holds it.
fn given_up(lease: &Value, node: &HostName) -> Option<Value> {
    let holder = lease["spec"]["holderIdentity"].as_str()?;
    let (host, _) = holder.split_once('_')?;
    let body = || json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    (host == node.as_str()).then(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    #[test]
    fn only_leases_of_the_lost_host_end() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |method, path, _| {
            let holder = if path.contains("scheduler") { "h12_cd" } else { "h1_ab" };
            let lease = json!({"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": holder}});
            Reply::Json(200, if method == "GET" { lease.to_string() } else { "{}".to_owned() })
        });
        assert!(end(&bench.job(), &"h1".parse().unwrap()).unwrap().changed);
        let sent = requests.lock();
        let written: Vec<_> = sent.iter().filter(|(method, ..)| method != "GET").collect();
        assert_eq!(written.len(), 1, "{sent:?}");
        assert!(written[0].1.contains("/leases/kube-controller-manager?"), "{sent:?}");
        let patch =
            r#"{"metadata":{"resourceVersion":"7"},"spec":{"holderIdentity":"","leaseDurationSeconds":1}}"#;
        assert_eq!(written[0].2, patch);
    }

    #[test]
    fn no_lease_is_no_error() {
        let mut bench = Bench::new();
        serve(&mut bench, |_, _, _| Reply::Json(404, "{}".to_owned()));
        assert!(!end(&bench.job(), &"h1".parse().unwrap()).unwrap().changed);
    }
}
