//! The network configuration of every host: the proxy mode and the MTU of pods.

use crate::support::{address, bare_hosts, intent, step};
use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_plan::{Intent, Observation, Plan, Snapshot, plan, validate};
use kubeon_wire::{Content, LinkFact, Op};
use serde_json::{Value, json};

fn intent_with(mode: ProxyMode) -> Intent {
    let intent = intent(1, 1);
    let mut spec = (*intent.spec).clone();
    spec.settings.proxy_mode = mode;
    let version = spec.version;
    Intent { spec: validate(spec, &[version]).unwrap().0, ..intent }
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
    assert_eq!(notes, [(Some(address(1)), "its kernel has no nftables: kube-proxy uses iptables here")]);
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
