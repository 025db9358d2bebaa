//! Checks of hosts, with constructed facts.

use std::time::{Duration, Instant};

use crate::support::{address, bare_hosts, created, intent, named, with_settings};
use kubeon_api::{Arch, HostRole};
use kubeon_plan::precheck::{connection_targets, may_be_ignored, precheck};
use kubeon_plan::sim::artifacts;
use kubeon_plan::{Intent, Observation, ObservationFailure, PlanError, RefusedField, Remedy, Snapshot, plan};
use kubeon_wire::{
    Cgroup, Claim, Facts, LinkFact, PrecheckReport, PrecheckResult, PrecheckSeverity, Reach, ReachFact,
};

fn edit(snapshot: &mut Snapshot, index: usize, change: impl FnOnce(&mut Facts)) {
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(index)) else {
        panic!("not observed")
    };
    change(facts);
}

fn without_module(facts: &mut Facts, name: &str) {
    facts.modules.insert(name.to_owned(), false);
}

/// The result of a check of the worker in a cluster of one master and one worker.
fn checked(check: &str, change: impl FnOnce(&mut Facts)) -> PrecheckResult {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, change);
    result(&precheck(&intent(1, 1), &snapshot), 1, check)
}

fn result(report: &PrecheckReport, index: usize, check: &str) -> PrecheckResult {
    let host = report.hosts.iter().find(|host| host.host == address(index)).unwrap();
    host.checks.iter().find(|result| result.check == check).unwrap_or_else(|| panic!("no {check}")).clone()
}

#[track_caller]
fn fails(
    check: &str,
    severity: PrecheckSeverity,
    words: &str,
    change: impl FnOnce(&mut Facts),
) -> PrecheckResult {
    let result = checked(check, change);
    assert!(!result.ok, "{result:?}");
    assert_eq!(result.severity, severity, "{result:?}");
    assert!(result.message.contains(words), "{result:?}");
    result
}

fn error(check: &str, words: &str, change: impl FnOnce(&mut Facts)) -> PrecheckResult {
    fails(check, PrecheckSeverity::Error, words, change)
}

fn warning(check: &str, words: &str, change: impl FnOnce(&mut Facts)) {
    fails(check, PrecheckSeverity::Warning, words, change);
}

/// A part has 40 MiB; a master lacks 13 of them and a worker 9, and 1024 MiB stay free.
#[test]
fn versions_whose_bundles_are_elsewhere_need_disk_space() {
    let needed = |unseen_versions: u32| {
        let intent = Intent { artifacts: artifacts("v1.37.2"), unseen_versions, ..named(1, 1) };
        let report = precheck(&intent, &created(1, 1, &[Some(true)]));
        [0, 1].map(|index| result(&report, index, "disk").wanted)
    };
    assert_eq!(needed(0), ["1544 MiB", "1384 MiB"]);
    assert_eq!(needed(2), ["2584 MiB", "2104 MiB"], "each as much as the one that comes now");
}

#[test]
fn a_capable_host_passes_every_check() {
    let report = precheck(&intent(1, 1), &bare_hosts(2));
    assert!(report.ok && report.errors == 0 && report.warnings == 0, "{report:?}");
    assert_eq!(report.refusals().count(), 0);
    assert_eq!(report.hosts[0].checks.len(), 33, "{:?}", report.hosts[0].checks);
    assert_eq!((&report.hosts[0].role, &report.hosts[1].role), (&HostRole::Master, &HostRole::Worker));
}

#[test]
fn old_kernels_are_refused_with_the_texts_of_the_contract() {
    for (release, words) in [
        ("2.6.32-754.el6", Some("kernel version is minor < 3.0")),
        ("3.9.11", Some("kernel version is minor < 3.10")),
        ("3.10.0-1160.el7", None),
        ("4.18.0", None),
        ("6.1.0", None),
        ("nonsense", None),
    ] {
        let result = checked("kernel", |facts| facts.kernel = release.to_owned());
        let error = result.severity == PrecheckSeverity::Error && !result.ok;
        assert_eq!(error.then_some(result.message.as_str()), words, "{release}: {result:?}");
    }
    warning("kernel", "older than 4.19", |facts| facts.kernel = "3.10.0".to_owned());
}

#[test]
fn every_failed_check_is_a_refusal_of_its_host() {
    let mut snapshot = bare_hosts(3);
    edit(&mut snapshot, 1, |facts| facts.kernel = "3.9.0".to_owned());
    edit(&mut snapshot, 2, |facts| {
        facts.kernel = "2.6.32".to_owned();
        facts.clock_offset_seconds = 3600;
    });
    let report = precheck(&intent(1, 2), &snapshot);
    let refusals: Vec<_> =
        report.refusals().map(|refusal| format!("{}: {}", refusal.value, refusal.reason)).collect();
    assert_eq!(
        refusals,
        [
            "172.30.0.12: kernel version is minor < 3.10",
            "172.30.0.13: kernel version is minor < 3.0",
            "172.30.0.13: its clock is off by 1 h 0 min, ahead; set the time (chrony, timesyncd)",
        ]
    );
}

#[test]
fn machines_are_checked() {
    error("system", "runs FreeBSD", |facts| facts.system = "FreeBSD".into());
    error("system", "is aarch64", |facts| facts.architecture = "aarch64".into());
    error("system", "systemd", |facts| facts.has_systemd = false);
    error("sudo", "cannot become root", |facts| facts.is_root = false);
    error("disk", "has 100 MiB free", |facts| facts.disk_free_bytes = 100 << 20);
    warning("disk", "its disk will be 90 % full; above 85 % the kubelet deletes images", |facts| {
        facts.disk_total_bytes = facts.disk_free_bytes * 10;
    });
    assert!(checked("disk", |facts| facts.disk_total_bytes = facts.disk_free_bytes * 2).ok, "half full");
    error("clock", "off by 200 s, behind", |facts| facts.clock_offset_seconds = -200);
    warning("clock", "off by 20 s, ahead", |facts| facts.clock_offset_seconds = 20);
    error("selinux", "setenforce 0", |facts| facts.selinux_enforces = Some(true));
    assert!(checked("selinux", |facts| facts.selinux_enforces = Some(false)).ok, "permissive");
    warning("cgroup", "v1", |facts| facts.cgroup = Cgroup::V1);
    warning("memory", "has only 512 MiB", |facts| facts.memory_bytes = 512 << 20);
    warning("inodes", "has only 7 inodes", |facts| facts.inodes_free = Some(7));
    warning("swap", "will be turned off", |facts| facts.swap_bytes = 1 << 30);
    error("modules", "lacks overlay", |facts| without_module(facts, "overlay"));
    error("modules", "lacks vxlan; use a kernel with CONFIG_VXLAN", |facts| without_module(facts, "vxlan"));
    error(
        "modules",
        "lacks veth; install linux-modules-extra-6.8.0-41-generic, or use a kernel with",
        |facts| {
            without_module(facts, "veth");
            facts.os = "Ubuntu 24.04.1 LTS".into();
            facts.kernel = "6.8.0-41-generic".into();
        },
    );
    error("modules", "lacks ip_tables", |facts| {
        facts.has_nftables = false;
        ["nf_tables", "ip_tables"].into_iter().for_each(|name| without_module(facts, name));
    });
    assert!(checked("modules", |facts| without_module(facts, "ip_tables")).ok, "nftables does not need it");
    warning("modules", "lacks vxlan", |facts| {
        without_module(facts, "vxlan");
        facts.claim = Some(claim("demo", "uid-1"));
    });
    warning("modules", "br_netfilter", |facts| without_module(facts, "br_netfilter"));
    assert!(checked("modules", |facts| without_module(facts, "ip_vs")).ok, "only reported");
    warning("nftables", "iptables", |facts| facts.has_nftables = false);
    error("parameters", "net.ipv4.ip_forward", |facts| {
        facts.parameters.insert("net.ipv4.ip_forward".into(), "0".into());
        facts.can_set_parameters = Some(false);
    });
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 0, |facts| facts.cpus = 1);
    assert!(!result(&precheck(&intent(1, 1), &snapshot), 0, "cpu").ok);
    assert!(checked("cpu", |facts| facts.cpus = 1).ok, "a worker may have one");
}

#[test]
fn hosts_are_what_the_bundle_is_for() {
    let on_arm = |arch| {
        let mut desired = intent(1, 1);
        desired.artifacts.arch = arch;
        let mut snapshot = bare_hosts(2);
        edit(&mut snapshot, 1, |facts| facts.architecture = "aarch64".into());
        let report = precheck(&desired, &snapshot);
        [0, 1].map(|index| result(&report, index, "system").message)
    };
    let [other, same] = on_arm(Some(Arch::Arm64));
    assert_eq!((other.as_str(), same.as_str()), ("is x86_64; the bundle of v1.36.3 is for aarch64", ""));
    assert_eq!(on_arm(None), ["", ""], "without a bundle, every supported architecture is accepted");
    error("system", "is riscv64", |facts| facts.architecture = "riscv64".into());
}

#[test]
fn a_host_without_the_programs_for_packet_rules_gets_those_of_the_bundle() {
    let lacks = |facts: &mut Facts, tool: &str| {
        facts.programs =
            [("nft".to_owned(), tool != "nft"), ("iptables".to_owned(), tool != "iptables")].into();
    };
    warning("tools", "has no nft: kube-proxy and flannel use the one of the bundle", |facts| {
        lacks(facts, "nft")
    });
    warning(
        "tools",
        "has nft 0.9.8, older than 1.0.1: kube-proxy and flannel use the one of the bundle",
        |facts| {
            facts.nft_version = Some("0.9.8".into());
        },
    );
    warning("nftables", "older than 5.13", |facts| facts.kernel = "5.10.0".into());
    warning("tools", "(apt, package nftables)", |facts| lacks(facts, "nft"));
    warning("tools", "no package manager either", |facts| {
        lacks(facts, "nft");
        facts.package_manager = None;
    });
    warning("tools", "has no iptables", |facts| {
        lacks(facts, "iptables");
        facts.has_nftables = false;
    });
    assert!(
        checked("tools", |facts| lacks(facts, "iptables")).ok,
        "it is not called if the kernel has nftables"
    );
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, |facts| lacks(facts, "nft"));
    let mut desired = intent(1, 1);
    desired.artifacts.parts.remove("net-tools");
    let refused = plan(&desired, &snapshot).unwrap_err();
    let reason = &refused.refusals()[0].reason;
    assert!(reason.contains("has no nft") && reason.contains("install nft on the host"), "{reason}");
    assert_eq!(refused.refusals()[0].remedy, Some(Remedy::BuildBundle("v1.36.3".parse().unwrap())));
}

#[test]
fn duplicate_identities_are_found() {
    error("name", "has the same name h1 as 172.30.0.11 (Cluster hostname is duplicate)", |facts| {
        facts.hostname = "h1".into();
    });
    error("name", "no hostname that is a valid node name", |facts| facts.hostname = "_".into());
    warning("machine-id", "as 172.30.0.11", |facts| facts.machine_id = "machine-h1".into());
    let mut snapshot = bare_hosts(2);
    for index in 0..2 {
        edit(&mut snapshot, index, |facts| facts.product_uuid = "same".into());
    }
    let report = precheck(&intent(1, 1), &snapshot);
    assert!(!result(&report, 0, "product-uuid").ok && !result(&report, 1, "product-uuid").ok);
    assert!(report.ok, "copied machines are only a warning");
}

#[test]
fn ports_are_checked_by_role() {
    error("ports", "port 6443, 10250; free it", |facts| facts.busy_ports = vec![2379, 6443, 10250]);
    assert!(
        checked("ports", |facts| facts.busy_ports = vec![2379, 10257]).ok,
        "a worker does not use these ports"
    );
    warning("node-ports", "port 30080", |facts| facts.listening = vec![22, 10250, 30080]);
    let claimed = checked("ports", |facts| {
        facts.busy_ports = vec![6443];
        facts.claim = Some(claim("demo", "uid-1"));
    });
    assert!(claimed.ok, "the programs of the cluster listen on it");
}

fn claim(cluster: &str, uid: &str) -> Claim {
    let (cluster, version) = (cluster.parse().unwrap(), "v1.36.3".parse().unwrap());
    Claim { cluster, uid: uid.into(), generation: 4, version, role: HostRole::Worker }
}

#[test]
fn hosts_of_other_clusters_are_refused() {
    error("claim", "belongs to cluster other", |facts| facts.claim = Some(claim("other", "x")));
    error("claim", "identity x", |facts| facts.claim = Some(claim("demo", "x")));
    error("leftover", "/etc/kubernetes/admin.conf", |facts| {
        facts.foreign = vec!["/etc/kubernetes/admin.conf".into()];
    });
}

#[test]
fn own_services_of_the_host_are_not_replaced_without_consent() {
    let has = |names: &'static [&'static str]| {
        move |facts: &mut Facts| facts.own_services = names.iter().map(|name| (*name).to_owned()).collect()
    };
    let both = has(&["containerd", "haproxy"]);
    error("own-services", "(containerd, haproxy)", both);
    let docker = error("own-services", "(docker)", has(&["docker"]));
    assert_eq!(docker.remedy, Some(Remedy::Ignore("own-services".to_owned())));
    let claimed = checked("own-services", |facts| {
        both(facts);
        facts.claim = Some(claim("demo", "uid-1"));
    });
    assert!(claimed.ok, "a host of the cluster");

    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 0, has(&["haproxy"]));
    assert!(result(&precheck(&intent(1, 1), &snapshot), 0, "own-services").ok, "a master gets no haproxy");
    edit(&mut snapshot, 1, has(&["haproxy"]));
    let elsewhere = precheck(&crate::support::behind_load_balancer(1, 1), &snapshot);
    assert!(
        result(&elsewhere, 1, "own-services").ok,
        "a worker behind an external load balancer gets no haproxy"
    );
    assert!(plan(&intent(1, 1), &snapshot).is_err());
    let desired = Intent { ignore: ["own-services".to_owned()].into(), ..intent(1, 1) };
    assert!(plan(&desired, &snapshot).is_ok());
}

#[test]
fn programs_of_the_owner_are_named_and_kept() {
    let mut snapshot = bare_hosts(2);
    for index in 0..2 {
        edit(&mut snapshot, index, |facts| facts.own_programs = vec!["ctr".into(), "kubectl".into()]);
    }
    let report = precheck(&intent(1, 1), &snapshot);
    let (master, worker) = (result(&report, 0, "own-programs"), result(&report, 1, "own-programs"));
    assert_eq!(
        master.message,
        "has ctr, kubectl of its own in /usr/local/bin, which stays; the cluster's is at \
         /var/lib/kubeon/current/containerd/bin/ctr, /var/lib/kubeon/current/kubectl/bin/kubectl"
    );
    assert_eq!(worker.found, "ctr", "a worker gets no kubectl");
    assert_eq!((report.ok, report.warnings), (true, 2));
    let made = plan(&intent(1, 1), &snapshot).unwrap();
    assert_eq!(made.notes.iter().filter(|note| note.text.contains("of its own")).count(), 2);
}

#[test]
fn networks_must_not_overlap() {
    let route = |text: &str| text.parse().unwrap();
    error("networks", "a route to 10.97.0.0/16, which is in the pod network", |facts| {
        facts.routes = vec![route("10.97.0.0/16")];
    });
    error("networks", "the address 10.64.0.9", |facts| facts.addresses = vec!["10.64.0.9".parse().unwrap()]);
    warning("networks", "a route to 10.0.0.0/8, which contains", |facts| {
        facts.routes = vec![route("10.0.0.0/8")]
    });
    assert!(checked("networks", |facts| facts.routes = vec![route("172.30.0.0/24")]).ok);
    let own = checked("networks", |facts| {
        facts.routes = vec![route("10.96.1.0/24")];
        facts.claim = Some(claim("demo", "uid-1"));
    });
    assert!(own.ok, "flannel's own routes");
    let link = |mtu, index| LinkFact { address: address(index).ip(), name: "eth0".into(), mtu };
    warning("mtu", "MTU of 1200", |facts| facts.links = vec![link(1200, 1)]);
    let mut snapshot = bare_hosts(3);
    for (index, mtu) in [1500, 1500, 9000].into_iter().enumerate() {
        edit(&mut snapshot, index, |facts| facts.links = vec![link(mtu, index)]);
    }
    let report = precheck(&intent(1, 2), &snapshot);
    assert!(result(&report, 0, "mtu").ok);
    assert!(result(&report, 2, "mtu").message.contains("9000, most other hosts have 1500"));
    let report = precheck(&with_settings(intent(1, 2), |settings| settings.mtu = Some(1451)), &snapshot);
    let refused = result(&report, 0, "mtu");
    assert!(refused.message.contains("may have 1450 bytes, but network.mtu is 1451"), "{refused:?}");
    assert!(refused.prevents() && refused.remedy == Some(Remedy::Change(RefusedField::Mtu)), "{refused:?}");
    assert!(!result(&report, 2, "mtu").message.contains("1451"));
    edit(&mut snapshot, 0, |facts| facts.claim = Some(claim("demo", "uid-1")));
    let report = precheck(&with_settings(intent(1, 2), |settings| settings.mtu = Some(1451)), &snapshot);
    let later = result(&report, 0, "mtu");
    assert!(!later.ok && !later.prevents(), "a host of the cluster prevents no change: {later:?}");
}

/// Sets the name servers of `/etc/resolv.conf` and of systemd-resolved.
fn name_servers(facts: &mut Facts, system: &[&str], resolved: Option<&[&str]>) {
    let list = |servers: &[&str]| servers.iter().map(|server| (*server).to_owned()).collect::<Vec<_>>();
    facts.name_servers.insert("/etc/resolv.conf".into(), list(system));
    if let Some(servers) = resolved {
        facts.name_servers.insert("/run/systemd/resolve/resolv.conf".into(), list(servers));
    }
}

#[test]
fn a_host_needs_a_name_server_that_pods_reach() {
    let stub = |facts: &mut Facts| name_servers(facts, &["127.0.0.53"], None);
    let refused = error("dns", "/etc/resolv.conf names 127.0.0.53, which pods cannot use; add one", stub);
    assert_eq!(refused.remedy, Some(Remedy::Ignore("dns".to_owned())));
    let resolved = checked("dns", |facts| {
        name_servers(facts, &["127.0.0.53"], Some(&["10.0.0.2"]));
        facts.name_server_answers.insert("10.0.0.2".into(), true);
    });
    assert!(resolved.ok);
    let found = "10.0.0.2 answers (pods get them from /run/systemd/resolve/resolv.conf; /etc/resolv.conf names \
                 127.0.0.53, which pods cannot use)";
    assert_eq!(resolved.found, found);
    warning("dns", "knows no name server that pods reach", |facts| {
        stub(facts);
        facts.claim = Some(claim("demo", "uid-1"));
    });
    warning("dns", "no name server", |facts| name_servers(facts, &[], None));
    warning("dns", "does not resolve its own name h2", |facts| facts.resolves_itself = Some(false));
}

#[test]
fn a_name_server_must_answer() {
    let servers = |answers: &'static [(&str, bool)]| {
        move |facts: &mut Facts| {
            name_servers(facts, &["10.0.0.2", "10.0.0.3"], None);
            facts.name_server_answers =
                answers.iter().map(|(s, answers)| ((*s).to_owned(), *answers)).collect();
        }
    };
    error(
        "dns",
        "gets no answer from its name servers 10.0.0.2, 10.0.0.3",
        servers(&[("10.0.0.2", false), ("10.0.0.3", false)]),
    );
    warning(
        "dns",
        "no answer from its name server 10.0.0.3",
        servers(&[("10.0.0.2", true), ("10.0.0.3", false)]),
    );
    assert!(checked("dns", servers(&[])).ok, "the host cannot ask");
}

#[test]
fn a_refused_connection_is_an_answer_but_a_timeout_is_not() {
    let reached = |target: &str, outcome| ReachFact { target: target.into(), port: 6443, outcome };
    assert!(checked("peers", |facts| facts.reached = vec![reached("172.30.0.11", Reach::Refused)]).ok);
    error("peers", "cannot reach 172.30.0.11:6443 (no answer)", |facts| {
        facts.reached = vec![reached("172.30.0.11", Reach::Silent)];
    });
    let registry =
        |outcome| move |facts: &mut Facts| facts.reached = vec![reached("registry.local", outcome)];
    error("registry", "registry.local:6443 (connection refused)", registry(Reach::Refused));
    error("registry", "(no route or unknown name)", registry(Reach::Failed));
    assert!(checked("registry", registry(Reach::Open)).ok && checked("peers", registry(Reach::Failed)).ok);
}

#[test]
fn hosts_try_the_connections_that_they_need() {
    let targets = connection_targets(&intent(3, 2), &[("registry.local".into(), 443)]);
    let to = |index: usize, port: u16| (address(index).to_string(), port);
    assert_eq!(targets[&address(4)], [("registry.local".into(), 443), to(0, 6443), to(1, 6443), to(2, 6443)]);
    let master = &targets[&address(0)];
    for target in [to(1, 2379), to(2, 2380), to(1, 6443), to(2, 10250), to(3, 10250), to(4, 10250)] {
        assert!(master.contains(&target), "{target:?}");
    }
    assert!(
        !master.iter().any(|(target, _)| *target == address(0).to_string()),
        "a host does not connect to itself"
    );
    let skipped = connection_targets(&Intent { skip_hosts: vec![address(4)], ..intent(3, 2) }, &[]);
    assert!(!skipped.contains_key(&address(4)) && !skipped[&address(0)].contains(&to(4, 10250)));
    let many = connection_targets(&intent(3, 1000), &[]);
    assert!(many.values().all(|targets| targets.len() < 300), "the probe ends in time");
}

#[test]
fn a_host_that_cannot_be_observed_is_reported_and_may_be_skipped() {
    let mut snapshot = bare_hosts(3);
    let unknown = |why: &str, failure| Observation::Unknown { why: why.into(), failure };
    snapshot.hosts.insert(address(1), unknown("no route to host", ObservationFailure::NoAnswer));
    snapshot.hosts.insert(address(2), unknown("refused the login", ObservationFailure::LoginRefused));
    let mut desired = intent(1, 2);
    let report = precheck(&desired, &snapshot);
    assert!(!report.ok && report.errors == 2);
    assert_eq!(result(&report, 1, "reach").remedy, Some(Remedy::SkipHost(address(1))));
    assert!(result(&report, 2, "reach").ok && !result(&report, 2, "login").ok);
    desired.skip_hosts = vec![address(1), address(2)];
    assert!(precheck(&desired, &snapshot).ok);
    snapshot.hosts.insert(address(0), unknown("no route to host", ObservationFailure::NoAnswer));
    assert!(!precheck(&desired, &snapshot).ok, "a master cannot be left out");
    snapshot.hosts.insert(address(0), unknown("its key is not known", ObservationFailure::UnknownHostKey));
    let report = precheck(&desired, &snapshot);
    assert_eq!(result(&report, 0, "login").remedy, Some(Remedy::TrustHostKey(address(0))));
}

#[test]
fn an_ignored_check_does_not_prevent_a_plan() {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, |facts| facts.busy_ports = vec![10250]);
    let refused = intent(1, 1);
    assert!(plan(&refused, &snapshot).is_err());
    let ignoring = Intent { ignore: ["ports".to_owned()].into(), ..refused };
    let report = precheck(&ignoring, &snapshot);
    assert!(report.ok && result(&report, 1, "ports").ignored && report.warnings == 1);
    let made = plan(&ignoring, &snapshot).unwrap();
    assert!(made.notes.iter().any(|note| note.text.contains("10250")), "the note is kept: {:?}", made.notes);
    assert!(may_be_ignored("ports").is_ok());
    assert!(may_be_ignored("claim").unwrap_err().contains("cannot be ignored"));
    assert!(
        may_be_ignored("nonsense")
            .unwrap_err()
            .contains("use one of leftover, own-services, own-programs, kernel")
    );
}

#[test]
fn a_failed_check_prevents_a_plan() {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, |facts| {
        facts.kernel = "3.9".into();
        facts.swap_bytes = 1;
    });
    let error = plan(&intent(1, 1), &snapshot).unwrap_err();
    assert_eq!(error.refusals()[0].reason, "kernel version is minor < 3.10");
    let PlanError::Refused(refused) = &error else { panic!("refused: {error}") };
    assert!(refused.notes.iter().any(|note| note.text.contains("swap")));
}

#[test]
fn a_thousand_hosts_are_checked_quickly() {
    let (desired, snapshot) = (intent(3, 997), bare_hosts(1000));
    let start = Instant::now();
    let report = precheck(&desired, &snapshot);
    assert!(report.ok && report.hosts.len() == 1000);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
