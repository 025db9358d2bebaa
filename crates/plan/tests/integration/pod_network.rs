//! Clusters whose owner installs the network of the pods, and with it the implementation of Services.

use kubeon_api::kubernetes_cluster::{Cni, FirewallMode, LoadBalancer, ProxyMode};
use kubeon_plan::sim::{apply, run_to_completion};
use kubeon_plan::{Intent, Plan, Snapshot, lint, plan};
use kubeon_wire::{
    Check, ClusterFacts, Content, EtcdFact, FirewallFact, FirewallProgram, LinkFact, NodeFact, Op,
};

use crate::support::{address, balanced_by, bare_hosts, edit, golden, named, step, texts, with_settings};

/// What a kubelet says while no network plugin has written its configuration.
const LACKS: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                     message:Network plugin returns error: cni plugin not initialized";

fn of_owner(masters: usize, workers: usize, mode: ProxyMode) -> Intent {
    with_settings(named(masters, workers), |settings| {
        (settings.cni, settings.proxy_mode) = (Cni::None, mode);
    })
}

/// The masters report all nodes as Ready, or as nodes that lack a network.
fn report(snapshot: &mut Snapshot, masters: usize, workers: usize, ready: bool) {
    let reason = if ready { String::new() } else { LACKS.to_owned() };
    let node = NodeFact { ready, reason, kubelet: "v1.36.3".to_owned(), ..NodeFact::default() };
    let name = |index: usize| format!("h{}", index + 1);
    let members = (0..masters).map(|index| (name(index), Some(true))).collect();
    let report = ClusterFacts {
        api_ready: true,
        nodes: Some((0..masters + workers).map(|index| (name(index), node.clone())).collect()),
        etcd: EtcdFact::Members(members),
        ..ClusterFacts::default()
    };
    for index in 0..masters {
        edit(snapshot, index, |facts| facts.cluster = Some(report.clone()));
    }
}

fn ids(plan: &Plan) -> Vec<String> {
    texts(plan.steps.iter().map(|step| &step.id))
}

fn checks(plan: &Plan, id: &str) -> Vec<Check> {
    let Op::Await { checks } = &step(plan, id).op else { panic!("{id} is no check") };
    checks.clone()
}

#[test]
fn a_plugin_that_is_applied_later_is_proved_by_the_next_plan() {
    let (desired, mut snapshot) = (of_owner(1, 1, ProxyMode::Bpf), bare_hosts(2));
    assert_eq!(lint(&plan(&desired, &snapshot).unwrap(), &snapshot), []);
    let mut log = run_to_completion(&desired, &mut snapshot, 2);
    report(&mut snapshot, 1, 1, false);
    let waiting = plan(&desired, &snapshot).unwrap();
    assert_eq!((ids(&waiting), waiting.awaits_network), (vec![], true));
    report(&mut snapshot, 1, 1, true);
    let proof = plan(&desired, &snapshot).unwrap();
    let wanted = ["join/ready-h1", "join/ready-h2", "verify/dns", "verify/resolve@h1", "verify/resolve@h2"];
    let mut found = ids(&proof);
    found.sort_unstable();
    assert_eq!((found, proof.awaits_network), (wanted.map(str::to_owned).to_vec(), false));
    log += &run_to_completion(&desired, &mut snapshot, 2);
    assert_eq!(plan(&desired, &snapshot).unwrap().steps, [], "{log}");
    golden("own-network", &log);
}

#[test]
fn a_new_cluster_runs_what_its_owner_does_not_replace() {
    for (mode, proxy) in [(ProxyMode::Bpf, false), (ProxyMode::Nftables, true)] {
        let made = plan(&of_owner(1, 1, mode), &bare_hosts(2)).unwrap();
        let all = ids(&made);
        let has = |part: &str| all.iter().any(|id| id.contains(part));
        assert_eq!((has("/kube-proxy@"), has("flannel"), has("network/choose@")), (proxy, false, proxy));
        assert!(has("network/dns") && !has("verify/dns") && !has("verify/resolve"), "{all:?}");
        let Op::Kernel { modules, .. } = &step(&made, "prepare/kernel@h2").op else { panic!("{all:?}") };
        assert!(!modules.contains(&"vxlan".to_owned()), "{modules:?}");
        let Op::Files { files } = &step(&made, "network/config@h2").op else { panic!("{all:?}") };
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let kubeconfig = "/etc/kubernetes/kube-proxy.conf";
        let settings = "/etc/kubernetes/kube-proxy.yaml";
        assert_eq!(paths, if proxy { vec![kubeconfig, settings] } else { vec![kubeconfig] });
        assert!(matches!(files[0].content, Content::Text(_)), "the node program reads it too");
        let ready = checks(&made, "join/ready-h2");
        assert!(matches!(ready[..], [Check::NodesReady { may_lack_network: true, .. }]), "{ready:?}");
        let note = made.notes.iter().find(|note| note.text.contains("network.cni none")).unwrap();
        assert_eq!(note.text.contains("implements Services too"), !proxy, "{note:?}");
    }
}

#[test]
fn nodes_without_a_network_change_in_the_rolling_order() {
    let (desired, mut snapshot) = (of_owner(3, 2, ProxyMode::Bpf), bare_hosts(5));
    run_to_completion(&desired, &mut snapshot, 2);
    report(&mut snapshot, 3, 2, false);
    let other = with_settings(desired, |settings| settings.max_pods = 50);
    let made = plan(&other, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let counts: Vec<usize> = made.rolling.iter().map(|group| group.hosts.len()).collect();
    assert_eq!(counts, [3, 2], "{:?}", made.rolling);
    let proof = checks(&made, "verify/node@h4");
    let [Check::NodeWorks { units, may_lack_network, .. }] = &proof[..] else { panic!("{proof:?}") };
    let wanted = ["containerd.service", "kubelet.service"].map(str::to_owned);
    assert_eq!((&units[..], *may_lack_network), (&wanted[..], true));
    apply(&made, made.steps.len(), &mut snapshot);
    assert_eq!(plan(&other, &snapshot).unwrap().steps, []);
}

#[test]
fn a_network_that_was_there_is_waited_for() {
    let (desired, mut snapshot) = (of_owner(1, 1, ProxyMode::Nftables), bare_hosts(2));
    run_to_completion(&desired, &mut snapshot, 2);
    report(&mut snapshot, 1, 1, true);
    run_to_completion(&desired, &mut snapshot, 2);
    report(&mut snapshot, 1, 1, false);
    let made = plan(&desired, &snapshot).unwrap();
    assert!(!made.awaits_network);
    let why = &step(&made, "join/ready-h2").why;
    assert!(why.starts_with("the node is not Ready: container runtime network not ready"), "{why}");
    let ready = checks(&made, "join/ready-h2");
    assert!(matches!(ready[..], [Check::NodesReady { may_lack_network: false, .. }]), "{ready:?}");
}

#[test]
fn hosts_need_no_overlay_and_no_opening_for_the_network_of_the_owner() {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, |facts| facts.modules = [("vxlan".to_owned(), false)].into());
    assert!(plan(&named(1, 1), &snapshot).is_err(), "flannel needs the module");
    let desired = of_owner(1, 1, ProxyMode::Bpf);
    assert!(plan(&desired, &snapshot).is_ok());
    edit(&mut snapshot, 1, |facts| {
        facts.links = vec![LinkFact { address: address(1).ip(), name: "eth0".to_owned(), mtu: 1500 }];
        let program = FirewallProgram::Firewalld;
        facts.firewall =
            Some(FirewallFact { program, lets_in: Vec::new(), forwards: Vec::new(), understood: true });
    });
    let refused = plan(&desired, &snapshot).unwrap_err();
    let reasons: Vec<&str> = refused.refusals().iter().map(|refusal| refusal.reason.as_str()).collect();
    assert_eq!(reasons, ["its firewall (firewalld) does not let in TCP 10250 from 172.30.0.11"]);
    let managed = with_settings(desired, |settings| settings.firewall = FirewallMode::Manage);
    let made = plan(&managed, &snapshot).unwrap();
    let Op::Firewall { lets_in, pod_links, .. } = &step(&made, "prepare/firewall@h2").op else {
        panic!("no opening")
    };
    assert!(pod_links.is_empty(), "{pod_links:?}");
    assert!(lets_in.iter().all(|packets| packets.ports != Some((8472, 8472))), "{lets_in:?}");
}

#[test]
fn a_service_that_nothing_serves_yet_is_not_asked() {
    let desired = balanced_by(LoadBalancer::Updater, of_owner(1, 1, ProxyMode::Bpf));
    let mut snapshot = bare_hosts(2);
    assert!(!ids(&plan(&desired, &snapshot).unwrap()).contains(&"verify/apiserver-service@h2".to_owned()));
    run_to_completion(&desired, &mut snapshot, 2);
    report(&mut snapshot, 1, 1, false);
    let other = with_settings(desired.clone(), |settings| settings.max_pods = 50);
    let proof = checks(&plan(&other, &snapshot).unwrap(), "verify/node@h2");
    let [Check::NodeWorks { address: asked, .. }] = &proof[..] else { panic!("{proof:?}") };
    assert_eq!(*asked, address(0).ip());
    report(&mut snapshot, 1, 1, true);
    assert!(ids(&plan(&desired, &snapshot).unwrap()).contains(&"verify/apiserver-service@h2".to_owned()));
}
