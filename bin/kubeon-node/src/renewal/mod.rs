//! `kubeon-node renew`: renews the certificates of this host, without the control machine. A systemd timer starts it,
//! and systemd starts it at boot before the programs that use the certificates.
//!
//! ```text
//!   master:  due leaves ─► lock ─► new certificate beside the old ─► journal ─► rename
//!            then  ─► sign requests of workers, each for its own node; report in the cluster
//!   worker:  due leaves ─► request to the API server; a later run: certificate ─► lock ─► journal ─► rename
//!            then  ─► masters that joined ─► haproxy
//!   all:     the certificates that end first ─► annotation of the own node
//! ```
//!
//! A renewal keeps the key, so one rename replaces a leaf, and a program never finds a certificate without its key.
//! Every program reads a changed certificate again by itself, so nothing is restarted.

mod answers;
mod kubelet;
mod leaves;
mod lock;
mod master_report;
mod masters;
mod node_annotation;
mod report;
mod requests;

use kubeon_wire::StepFailure;

use crate::fence;
use crate::host::HostSystem;

pub use report::RenewalReport;

/// Renews every leaf certificate of kubeon on this host that is past two thirds of its life at `now`, in seconds since
/// 1970. While another program changes the host, it does nothing: the next run follows within minutes. A master also
/// signs the requests of workers, and reports the ends of its certificates, the members of etcd and what differs from its
/// steps. A worker learns masters that joined while it was off. The node of the host shows which certificates end first.
///
/// # Errors
/// If the claim, the journal or the certificates cannot be read.
pub fn run(host: &HostSystem, now: i64) -> Result<RenewalReport, StepFailure> {
    let root = &host.root;
    let Some(claim) = fence::claim(root)? else {
        return Ok(RenewalReport::note("nothing to renew: this host belongs to no cluster"));
    };
    let mut report = RenewalReport::default();
    if leaves::are_due(root, now)? {
        report = match lock::take(root, &claim)? {
            Ok(_lock) => leaves::renew(root, now)?,
            Err(busy) => return Ok(busy),
        };
    }
    answers::sign(host, now, &mut report);
    requests::send(root, &claim, now, &mut report);
    master_report::publish(host, &claim, now, &mut report);
    masters::learn(host, &claim, &mut report);
    node_annotation::publish(host, &mut report);
    Ok(report)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
