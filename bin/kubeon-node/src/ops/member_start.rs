//! The first start of an etcd member that joins.
//!
//! Such a member asks the others to record its name and addresses, and serves clients after it applied the record. If the record is part
//! of the first data that it receives, it does not notice and asks again after seven seconds only (etcd 3.6, `publishV3`). Started again,
//! it asks at once.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_render::paths::ETCD_MEMBERSHIP;

use crate::durable::read_text;
use crate::job::Job;
use crate::paths;
use crate::root::Root;
use crate::systemd::NotStarted;

/// The unit of a member that is no static pod.
const UNIT: &str = "etcd.service";
/// Where a member shows its metrics, from its begin.
const METRICS: &str = "http://127.0.0.1:2381/metrics";
/// The interval between two looks at them, and the time limit of one.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a member that has its first data waits for its record before it is started again. The answer takes milliseconds.
const WITHOUT_RECORD: Duration = Duration::from_millis(600);

/// Whether the start of this unit makes a member that receives its data from the others.
pub(super) fn joins(root: &Root, unit: &str) -> bool {
    let is_new = !root.at(paths::ETCD_DATA).join("member").exists();
    let list = || read_text(&root.at(ETCD_MEMBERSHIP)).ok().flatten().unwrap_or_default();
    unit == UNIT && is_new && list().contains("ETCD_INITIAL_CLUSTER_STATE=existing")
}

/// Runs `start`, which starts the member and waits until it serves. A member whose record is lost is started once more meanwhile; then
/// `start` waits for that start.
pub(super) fn with_record<T>(job: &Job<'_>, start: impl FnOnce() -> T) -> T {
    with_record_at(METRICS, job, start)
}

fn with_record_at<T>(metrics: &str, job: &Job<'_>, start: impl FnOnce() -> T) -> T {
    let (services, deadline) = (job.host.services.as_ref(), job.deadline);
    let (end, ended) = channel::<()>();
    thread::scope(|scope| {
        let again =
            scope.spawn(move || lacks_record(metrics, &ended).then(|| services.restart(UNIT, deadline)));
        let started = start();
        drop(end);
        match again.join() {
            Ok(Some(Ok(()))) => {
                job.note("etcd started again: its record was in the first data that it received")
            }
            Ok(Some(Err(NotStarted::Failed(why)))) => job.note(format!("etcd did not start again: {why}")),
            // The start itself says why.
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
        started
    })
}

/// Waits until the member has its first data and waits for its record too long, or until the start ended. Returns whether it is the former.
fn lacks_record(metrics: &str, ended: &Receiver<()>) -> bool {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .proxy(None)
        .timeout_global(Some(INTERVAL))
        .http_status_as_error(true)
        .build()
        .into();
    let mut since: Option<Instant> = None;
    while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let seen =
            agent.get(metrics).call().ok().and_then(|mut answer| answer.body_mut().read_to_string().ok());
        if !seen.is_some_and(|text| has_data_and_waits(&text)) {
            since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() >= WITHOUT_RECORD {
            return true;
        }
    }
    false
}

/// Whether the metrics of a member say that it applied data and has a request to the others that is not answered.
fn has_data_and_waits(metrics: &str) -> bool {
    let value = |name: &str| {
        let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next().and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    value("etcd_server_proposals_pending") >= 1.0
        && value("etcd_server_proposals_applied_total") >= 1.0
        && value("etcd_server_snapshot_apply_in_progress_total") < 1.0
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::testing::Bench;

    const WAITING: &str = "# TYPE etcd_server_proposals_pending gauge\netcd_server_proposals_pending 1\n\
                           etcd_server_proposals_applied_total 613\netcd_server_snapshot_apply_in_progress_total 0\n";

    /// A server that shows these metrics.
    fn metrics(text: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let _ = connection.read(&mut [0; 1024]).unwrap();
                let head =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", text.len());
                connection.write_all((head + text).as_bytes()).unwrap();
            }
        });
        url
    }

    /// What is started while the first start goes on for a while.
    fn started(url: &str) -> Vec<String> {
        let bench = Bench::new();
        with_record_at(url, &bench.job(), || thread::sleep(WITHOUT_RECORD * 3));
        bench.calls()
    }

    #[test]
    fn a_member_that_misses_its_record_is_started_once_more() {
        assert_eq!(started(&metrics(WAITING)), ["restart etcd.service"]);
    }

    #[test]
    fn a_member_that_receives_data_or_shows_nothing_is_left_alone() {
        let receives = "etcd_server_proposals_pending 1\netcd_server_proposals_applied_total 0\n";
        assert_eq!(started(&metrics(receives)), Vec::<String>::new());
        assert_eq!(started("http://127.0.0.1:1/metrics"), Vec::<String>::new());
        let applies = "etcd_server_snapshot_apply_in_progress_total 1\netcd_server_proposals_pending 1\n\
                       etcd_server_proposals_applied_total 613\n";
        assert!(!has_data_and_waits(applies));
    }

    #[test]
    fn only_a_new_member_of_an_existing_cluster_joins() {
        let bench = Bench::new();
        let root = &bench.host.root;
        bench.write(ETCD_MEMBERSHIP, "ETCD_INITIAL_CLUSTER_STATE=new\n");
        assert!(!joins(root, UNIT), "it is among the first members");
        bench.write(ETCD_MEMBERSHIP, "ETCD_INITIAL_CLUSTER_STATE=existing\n");
        assert!(joins(root, UNIT) && !joins(root, "etcd.pod") && !joins(root, "kubelet.service"));
        bench.write(&format!("{}/member/wal/0.wal", paths::ETCD_DATA), "");
        assert!(!joins(root, UNIT), "it has data");
    }
}
