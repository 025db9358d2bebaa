//! The network configuration of every host: the proxy mode and the MTU of pods.

use crate::support::{address, bare_hosts, intent, step, with_settings};
use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_plan::{Intent, Observation, Plan, Snapshot, plan};
use kubeon_wire::{Check, Content, LinkFact, Op};
use serde_json::{Value, json};

fn intent_with(mode: ProxyMode) -> Intent {
    with_settings(intent(1, 1), |settings| settings.proxy_mode = mode)
}

/// Two hosts; the kernel of the second has no nftables.
fn second_without_nftables() -> Snapshot {
    let mut snapshot = bare_hosts(2);
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(1)) else { panic!("not observed") };
    facts.has_nftables = false;
    snapshot
}

/// The content of a file that the plan writes on a host.
fn config(plan: &Plan, index: usize, path: &str) -> Value {
    let steps = plan.steps.iter().filter(|step| step.host == address(index));
    let files = steps.filter_map(|step| match &step.op {
        Op::Files { files } => Some(files),
        _ => None,
    });
    let file = files.flatten().find(|file| file.path == path).unwrap();
    let Content::Text(text) = &file.content else { panic!("{path} is a secret") };
    serde_json::from_str(text).unwrap()
}

/// kube-proxy and flannel of a host use the same proxy mode: neither sees the rules of the other mode.
#[track_caller]
fn assert_mode(plan: &Plan, index: usize, mode: &str) {
    let proxy = config(plan, index, "/etc/kubernetes/kube-proxy.yaml");
    let flannel = config(plan, index, "/etc/kubernetes/flannel.json");
    assert_eq!(proxy["mode"], mode, "{proxy}");
    assert_eq!(flannel["EnableNFTables"], json!(mode == "nftables"), "{flannel}");
    let step = step(plan, &format!("network/config@h{}", index + 1));
    assert!(step.title.contains(&format!("kube-proxy ({mode})")), "{}", step.title);
}

#[test]
fn every_host_uses_the_requested_proxy_mode() {
    for (mode, text) in [(ProxyMode::Nftables, "nftables"), (ProxyMode::Iptables, "iptables")] {
        let plan = plan(&intent_with(mode), &bare_hosts(2)).unwrap();
        assert_mode(&plan, 0, text);
        assert_mode(&plan, 1, text);
        assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    }
}

#[test]
fn a_host_whose_kernel_has_no_nftables_uses_iptables_with_a_note() {
    let plan = plan(&intent_with(ProxyMode::Nftables), &second_without_nftables()).unwrap();
    assert_mode(&plan, 0, "nftables");
    assert_mode(&plan, 1, "iptables");
    let notes: Vec<_> = plan.notes.iter().map(|note| (note.host, note.text.as_str())).collect();
    assert_eq!(
        notes,
        [(Some(address(1)), "its kernel has no nftables: kube-proxy and flannel use iptables here")]
    );
}

/// Changes the facts of a host.
fn edit(snapshot: &mut Snapshot, index: usize, change: impl FnOnce(&mut kubeon_wire::Facts)) {
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(index)) else {
        panic!("not observed")
    };
    change(facts);
}

#[test]
fn a_host_with_an_old_kernel_uses_iptables_with_a_note() {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, |facts| facts.kernel = "5.10.0-33-amd64".to_owned());
    let plan = plan(&intent_with(ProxyMode::Nftables), &snapshot).unwrap();
    assert_mode(&plan, 0, "nftables");
    assert_mode(&plan, 1, "iptables");
    let note = "its kernel 5.10.0-33-amd64 is older than 5.13, which kube-proxy requires for nftables: kube-proxy and \
                flannel use iptables here";
    assert_eq!(plan.notes.iter().map(|note| note.text.as_str()).collect::<Vec<_>>(), [note]);
}

#[test]
fn a_host_with_an_old_nft_uses_the_one_of_the_bundle() {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, |facts| facts.nft_version = Some("0.9.8".to_owned()));
    let plan = plan(&intent_with(ProxyMode::Nftables), &snapshot).unwrap();
    assert_mode(&plan, 1, "nftables");
    let Op::Files { files } = &step(&plan, "network/tools@h2").op else { panic!("files") };
    assert_eq!(
        files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        ["/var/lib/kubeon/tools/nft"]
    );
    for (id, first) in [("kube-proxy@h2", true), ("flannel@h2", true), ("kube-proxy@h1", false)] {
        let Op::Service { unit, .. } = &step(&plan, &format!("network/{id}")).op else { panic!("a service") };
        assert_eq!(unit.contains("PATH=/var/lib/kubeon/tools:"), first, "{id}");
    }
}

/// Sets the name servers of a host with systemd-resolved.
fn resolved(facts: &mut kubeon_wire::Facts) {
    for (file, server) in
        [("/etc/resolv.conf", "127.0.0.53"), ("/run/systemd/resolve/resolv.conf", "10.0.0.2")]
    {
        facts.name_servers.insert(file.to_owned(), vec![server.to_owned()]);
    }
}

/// The checks of the step that verifies DNS on a host.
fn dns_checks(plan: &Plan, host: &str) -> Vec<Check> {
    let Op::Await { checks } = &step(plan, &format!("verify/resolve@{host}")).op else { panic!("a check") };
    checks.clone()
}

#[test]
fn pods_do_not_get_the_stub_resolver_of_their_host() {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 0, |facts| {
        facts.name_servers.insert("/etc/resolv.conf".to_owned(), vec!["10.0.0.2".to_owned()]);
    });
    edit(&mut snapshot, 1, resolved);
    let plan = plan(&intent(1, 1), &snapshot).unwrap();
    let kubelet = |index| config(&plan, index, "/var/lib/kubelet/config.yaml")["resolvConf"].clone();
    assert_eq!(kubelet(0), Value::Null, "the kubelet's default is /etc/resolv.conf");
    assert_eq!(kubelet(1), "/run/systemd/resolve/resolv.conf");
    let title = &step(&plan, "join/kubelet-config@h2").title;
    assert!(title.ends_with("name servers of /run/systemd/resolve/resolv.conf"), "{title}");
    let upstream = |host| {
        dns_checks(&plan, host).into_iter().find_map(|check| match check {
            Check::DnsUpstream { resolv_conf, .. } => Some(resolv_conf),
            _ => None,
        })
    };
    assert_eq!(upstream("h1").as_deref(), Some("/etc/resolv.conf"));
    assert_eq!(upstream("h2").as_deref(), Some("/run/systemd/resolve/resolv.conf"));
}

#[test]
fn a_host_without_name_servers_gets_a_file_and_only_names_of_the_cluster_are_verified() {
    let mut snapshot = bare_hosts(1);
    edit(&mut snapshot, 0, |facts| {
        facts.name_servers.insert("/etc/resolv.conf".to_owned(), Vec::new());
    });
    let plan = plan(&intent(1, 0), &snapshot).unwrap();
    assert_eq!(config(&plan, 0, "/var/lib/kubelet/config.yaml")["resolvConf"], "/etc/kubernetes/resolv.conf");
    let Op::Files { files } = &step(&plan, "join/kubelet-config@h1").op else { panic!("files") };
    let Content::Text(text) = &files[1].content else { panic!("a text") };
    assert!(text.ends_with(&format!("\nnameserver {}\n", address(0))), "{text}");
    assert!(matches!(dns_checks(&plan, "h1")[..], [Check::Dns { .. }]));
}

#[test]
fn coredns_is_replaced_after_the_kubelets_use_another_resolver() {
    let desired = intent(1, 1);
    let mut done = bare_hosts(2);
    let first = plan(&desired, &done).unwrap();
    kubeon_plan::sim::apply(&first, first.steps.len(), &mut done);
    edit(&mut done, 1, resolved);
    let second = plan(&desired, &done).unwrap();
    let dns = step(&second, "network/dns");
    assert!(dns.needs.iter().any(|id| id.to_string() == "join/kubelet@h2"), "{:?}", dns.needs);
    assert!(second.steps.iter().any(|step| step.id.to_string() == "join/kubelet-config@h2"));
    assert!(!second.steps.iter().any(|step| step.id.to_string() == "join/kubelet@h1"), "h1 is not changed");
}

#[test]
fn the_mtu_of_pods_fits_the_link_of_the_host() {
    let size = |name: &str, mtu| {
        let mut snapshot = bare_hosts(1);
        let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else {
            panic!("not observed")
        };
        let other = LinkFact { address: address(1).ip(), name: "eth1".to_owned(), mtu: 1300 };
        facts.links = vec![other, LinkFact { address: address(0).ip(), name: name.to_owned(), mtu }];
        let plan = plan(&intent(1, 0), &snapshot).unwrap();
        config(&plan, 0, "/etc/kubernetes/cni.json.template")["plugins"][0]["mtu"].clone()
    };
    assert_eq!([size("eth0", 1500), size("eth0", 9000), size("eth0", 1400)], [1450, 8950, 1350]);
    assert_eq!(size("lo", 65536), 1450, "the loopback interface is ignored");
}

#[test]
fn a_declared_mtu_is_that_of_new_pods() {
    let smaller = with_settings(intent(1, 0), |settings| settings.mtu = Some(1400));
    let plan = plan(&smaller, &bare_hosts(1)).unwrap();
    assert_eq!(config(&plan, 0, "/etc/kubernetes/cni.json.template")["plugins"][0]["mtu"], 1400);
}
