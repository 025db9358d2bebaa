//! How programs and people reach the API: server URLs, hosts files and the certificates of API servers.

use std::collections::BTreeSet;

use crate::support::{address, bare_hosts, behind_load_balancer, golden, intent, step, texts};
use kubeon_plan::sim::run_to_completion;
use kubeon_plan::{Observation, Plan, Snapshot, lint, plan};
use kubeon_wire::{Content, File, HostsEntry, Op, SecretRef};
use serde_json::Value;

const LOOPBACK: &str = "https://127.0.0.1:6443";

/// The files that the plan writes on a host.
fn files(plan: &Plan, index: usize) -> impl Iterator<Item = &File> {
    let steps = plan.steps.iter().filter(move |step| step.host == address(index));
    steps.flat_map(|step| if let Op::Files { files } = &step.op { &files[..] } else { &[] })
}

/// The servers in all kubeconfigs of a host, by file name.
fn servers(plan: &Plan, index: usize) -> Vec<(String, String)> {
    let mut servers: Vec<_> = files(plan, index)
        .filter(|file| file.path.ends_with(".conf"))
        .filter_map(|file| {
            let Content::Text(text) = &file.content else { return None };
            let config: Value = serde_json::from_str(text).ok()?;
            let server = config["clusters"][0]["cluster"]["server"].as_str()?.to_owned();
            Some((file.path.rsplit('/').next().unwrap().to_owned(), server))
        })
        .collect();
    servers.sort();
    servers
}

fn hosts_file<'a>(plan: &'a Plan, name: &str) -> &'a [HostsEntry] {
    let Op::Hosts { entries } = &step(plan, &format!("prepare/hosts@{name}")).op else {
        panic!("{name} gets no hosts file")
    };
    entries
}

/// The ids of the steps that need the hosts file of a host.
fn steps_that_need_hosts_files(plan: &Plan) -> Vec<String> {
    let needs_file = |need: &String| need.starts_with("prepare/hosts@");
    let steps = plan.steps.iter().filter(|step| texts(&step.needs).iter().any(needs_file));
    texts(steps.map(|step| &step.id))
}

#[test]
fn no_program_needs_the_hosts_file() {
    let made = plan(&intent(3, 2), &bare_hosts(5)).unwrap();
    for index in 0..5 {
        let servers = servers(&made, index);
        assert_eq!(servers.len(), if index < 3 { 6 } else { 3 }, "{servers:?}");
        assert!(servers.iter().all(|(_, server)| server == LOOPBACK), "{servers:?}");
    }
    assert_eq!(steps_that_need_hosts_files(&made), Vec::<String>::new());
}

#[test]
fn workers_behind_an_external_load_balancer_use_the_name_of_the_api() {
    let made = plan(&behind_load_balancer(1, 1), &bare_hosts(2)).unwrap();
    assert!(servers(&made, 0).iter().all(|(_, server)| server == LOOPBACK));
    let worker = servers(&made, 1);
    assert!(worker.iter().all(|(_, server)| server == "https://apiserver.cluster.local:7443"), "{worker:?}");
    let needing = steps_that_need_hosts_files(&made);
    for step in ["join/kubelet@h2", "network/kube-proxy@h2", "network/flannel@h2"] {
        assert!(needing.iter().any(|id| id == step), "{step}: {needing:?}");
    }
    assert!(needing.iter().all(|id| id.ends_with("@h2")), "{needing:?}");
}

#[test]
fn the_start_of_the_kubelet_sets_the_server_of_its_kubeconfig() {
    for (desired, server) in [
        (intent(1, 1), "https://127.0.0.1:6443"),
        (behind_load_balancer(1, 1), "https://apiserver.cluster.local:7443"),
    ] {
        let made = plan(&desired, &bare_hosts(2)).unwrap();
        let Op::Service { unit, .. } = &step(&made, "join/kubelet@h2").op else { panic!("not a service") };
        assert!(unit.contains(&format!("|server: {server}|")), "{unit}");
    }
}

#[test]
fn a_hosts_file_has_the_name_of_the_api_the_masters_and_the_host_itself() {
    let made = plan(&intent(2, 2), &bare_hosts(4)).unwrap();
    let entries = |name: &str| -> Vec<String> {
        let entries = hosts_file(&made, name).iter();
        entries.map(|entry| format!("{} {}", entry.address, entry.names.join(" "))).collect()
    };
    let masters = ["172.30.0.11 h1", "172.30.0.12 h2"];
    assert_eq!(entries("h2"), ["172.30.0.12 apiserver.cluster.local", masters[0], masters[1]]);
    assert_eq!(
        entries("h4"),
        ["127.0.0.1 apiserver.cluster.local", masters[0], masters[1], "172.30.0.14 h4"]
    );
}

#[test]
fn a_new_worker_changes_no_other_worker() {
    let mut snapshot = bare_hosts(4);
    run_to_completion(&intent(1, 2), &mut snapshot, 1);
    let made = plan(&intent(1, 3), &snapshot).unwrap();
    let changed: BTreeSet<_> = made.steps.iter().map(|step| step.host).collect();
    assert_eq!(changed, [address(0), address(3)].into());
    let on_master = made.steps.iter().filter(|step| step.host == address(0));
    assert!(on_master.clone().all(|step| !matches!(step.op, Op::Hosts { .. } | Op::Service { .. })));
}

#[test]
fn the_certificate_of_an_api_server_has_the_addresses_of_its_own_host_only() {
    let certificate = |plan: &Plan, index| -> Vec<String> {
        let file = files(plan, index).find(|file| file.path == "/etc/kubernetes/pki/apiserver.crt").unwrap();
        let Content::Secret(SecretRef::LeafCertificate(leaf)) = &file.content else { panic!("{file:?}") };
        leaf.addresses.iter().map(ToString::to_string).collect()
    };
    let made = plan(&intent(3, 0), &bare_hosts(3)).unwrap();
    assert_eq!(certificate(&made, 0), ["10.64.0.1", "127.0.0.1", "172.30.0.11"]);
    assert_eq!(certificate(&made, 2), ["10.64.0.1", "127.0.0.1", "172.30.0.13"]);
    let made = plan(&behind_load_balancer(1, 1), &bare_hosts(2)).unwrap();
    assert_eq!(certificate(&made, 0), ["10.64.0.1", "127.0.0.1", "172.30.0.11", "172.30.9.9"]);
}

/// A cluster whose API servers have certificates with other content, as an older kubeon wrote them.
fn with_old_certificates(masters: usize, workers: usize) -> Snapshot {
    let mut snapshot = bare_hosts(masters + workers);
    run_to_completion(&intent(masters, workers), &mut snapshot, 1);
    for observation in snapshot.hosts.values_mut() {
        let Observation::Fresh(facts) = observation else { panic!("not observed") };
        for entry in facts.journal.iter_mut().filter(|entry| entry.id.starts_with("control/keys@")) {
            entry.digest = "old".to_owned();
        }
    }
    snapshot
}

#[test]
fn existing_api_servers_get_new_certificates_one_after_another() {
    let mut snapshot = with_old_certificates(3, 1);
    let made = plan(&intent(3, 1), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(texts(&step(&made, "control/keys@h1").needs), Vec::<String>::new());
    assert_eq!(texts(&step(&made, "control/keys@h2").needs), ["control/apiserver@h1", "verify/node@h1"]);
    assert_eq!(
        texts(&step(&made, "control/keys@h3").needs),
        ["control/apiserver@h1", "control/apiserver@h2", "verify/node@h2"]
    );
    golden("api-servers-one-by-one", &run_to_completion(&intent(3, 1), &mut snapshot, 3));
}

#[test]
fn a_plan_that_changes_api_servers_at_the_same_time_is_found() {
    let snapshot = with_old_certificates(2, 0);
    let mut made = plan(&intent(2, 0), &snapshot).unwrap();
    for step in &mut made.steps {
        step.needs.retain(|need| need.what() != "apiserver");
    }
    let found = lint(&made, &snapshot);
    let rules: Vec<_> = found.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules, ["api-servers", "rolling", "rolling"]);
    assert_eq!(
        found[0].text,
        "control/apiserver@h1 and control/apiserver@h2 would change API servers at the same time"
    );
}
