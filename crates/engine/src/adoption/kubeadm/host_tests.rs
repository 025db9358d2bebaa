//! Files of hosts as kubeadm v1.36 leaves them.

use kubeon_api::{ClusterName, HostRole};
use kubeon_plan::sim;
use kubeon_wire::Claim;

use super::*;
use crate::adoption::kubeadm::objects::tests::nodes;
use crate::adoption::kubeadm::static_pods::tests::manifests;

const KUBELET: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.64.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: \"\"
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
imageMaximumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: \"0\"
  verbosity: 0
memorySwap: {}
rotateCertificates: true
shutdownGracePeriod: 0s
staticPodPath: /etc/kubernetes/manifests
syncFrequency: 0s
";
const CONTAINERD: &str = "\
version = 3
root = \"/var/lib/containerd\"
[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]
  runtime_type = \"io.containerd.runc.v2\"
  [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]
    SystemdCgroup = true
";

/// The files of a node.
fn files(is_master: bool) -> BTreeMap<String, String> {
    let pods = if is_master { manifests() } else { BTreeMap::new() };
    let names: String = pods.keys().map(|pod| format!("{pod}.yaml\n")).collect();
    let arguments =
        "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock\"\n";
    let others = [
        (KUBELET_CONFIG, KUBELET),
        (KUBELET_ARGUMENTS[0], arguments),
        (KUBELET_ARGUMENTS[1], "# KUBELET_EXTRA_ARGS=--v=9\nKUBELET_EXTRA_ARGS=\n"),
        (CONTAINERD_CONFIG, CONTAINERD),
        (STATIC_PODS, names.trim_end()),
        (DROP_INS, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"),
        (NETWORKS, "10-flannel.conflist"),
    ];
    let others = others.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let pods = pods.into_iter().map(|(pod, text)| (format!("{MANIFESTS}/{pod}.yaml"), text));
    pods.chain(others).collect()
}

/// The master and the worker of a cluster, after a change of their facts and files. The index is 0 for the master.
pub(crate) fn hosts(change: impl Fn(usize, &mut Facts, &mut BTreeMap<String, String>)) -> Vec<KubeadmHost> {
    let host = |(index, node): (usize, KubeadmNode)| {
        let mut facts = sim::made_by_kubeadm(node.name.as_str(), &HostRole::of(node.is_master));
        facts.addresses = vec![node.address.ip()];
        let mut files = files(node.is_master);
        change(index, &mut facts, &mut files);
        KubeadmHost::of(node.address, node, facts, files)
    };
    nodes().into_iter().enumerate().map(host).collect()
}

/// Replaces a text of a file.
pub(crate) fn replace(files: &mut BTreeMap<String, String>, file: &str, from: &str, to: &str) {
    let text = files.entry(file.to_owned()).or_default();
    assert!(text.contains(from), "{from} is not in {text}");
    *text = text.replacen(from, to, 1);
}

fn problems_of(host: &KubeadmHost) -> Vec<String> {
    host.problems(Some(Ipv4Addr::new(10, 64, 0, 10)), "cluster.local")
}

#[test]
fn hosts_of_kubeadm_can_be_taken_over() {
    for host in hosts(|_, _, _| ()) {
        assert_eq!(problems_of(&host), Vec::<String>::new(), "{}", host.address);
        assert_eq!(host.max_pods(), None);
    }
}

#[test]
fn what_kubeon_would_not_keep_is_named() {
    type Change = fn(&mut Facts, &mut BTreeMap<String, String>);
    let cases: [(Change, &str); 12] = [
        (|_, files| replace(files, STATIC_PODS, "", "kube-vip.yaml\n"), "static pod kube-vip.yaml"),
        (|facts, _| facts.addresses = vec![Ipv4Addr::LOCALHOST], "is not node h1"),
        (
            |facts, _| facts.own_services.push("docker".to_owned()),
            "services of its own that kubeon would replace: docker",
        ),
        (|facts, _| facts.cgroup = Cgroup::V1, "has cgroupDriver \"systemd\"; kubeon needs \"cgroupfs\""),
        (
            |_, files| replace(files, KUBELET_CONFIG, "10.64.0.10", "10.64.0.11"),
            "has clusterDNS \"10.64.0.11\"",
        ),
        (
            |_, files| replace(files, KUBELET_CONFIG, "syncFrequency: 0s", "systemReserved: {cpu: 100m}"),
            "has systemReserved",
        ),
        (|_, files| replace(files, KUBELET_ARGUMENTS[0], "\"--", "\"--v=4 --"), "has --v=4"),
        (
            |_, files| replace(files, KUBELET_ARGUMENTS[0], "\"--", "\"--node-ip=10.0.0.7 --"),
            "has --node-ip=10.0.0.7",
        ),
        (
            |_, files| replace(files, DROP_INS, "", "/etc/systemd/system/kubelet.service.d/20-own.conf "),
            "20-own.conf adds",
        ),
        (
            |_, files| replace(files, CONTAINERD_CONFIG, "runtimes.runc]", "runtimes.nvidia]"),
            "has the runtime nvidia",
        ),
        (|_, files| replace(files, CONTAINERD_CONFIG, "/var/lib/containerd", "/data"), "has root /data"),
        (
            |_, files| replace(files, NETWORKS, "10-flannel.conflist", "notes.txt"),
            "no configuration of a network plugin",
        ),
    ];
    for (change, words) in cases {
        let hosts = hosts(|index, facts, files| {
            if index == 0 {
                change(facts, files);
            }
        });
        let found = problems_of(&hosts[0]);
        assert!(found.iter().any(|problem| problem.contains(words)), "{words}: {found:?}");
        assert_eq!(problems_of(&hosts[1]), Vec::<String>::new(), "{words}");
    }
}

#[test]
fn a_host_of_another_control_machine_is_refused() {
    let claim = Claim {
        cluster: "demo".parse::<ClusterName>().unwrap(),
        uid: "u9".to_owned(),
        generation: 3,
        version: "v1.36.3".parse().unwrap(),
        role: HostRole::Worker,
    };
    let hosts = hosts(|index, facts, _| facts.claim = Some(claim.clone()).filter(|_| index == 1));
    assert_eq!(problems_of(&hosts[0]), Vec::<String>::new());
    let found = problems_of(&hosts[1]);
    assert!(found.len() == 1 && found[0].contains("identity u9"), "{found:?}");
}

#[test]
fn a_worker_has_no_static_pods_and_a_master_all_of_them() {
    let changed = hosts(|index, _, files| match index {
        0 => drop(files.remove(&format!("{MANIFESTS}/kube-scheduler.yaml"))),
        _ => drop(files.insert(STATIC_PODS.to_owned(), "etcd.yaml".to_owned())),
    });
    assert_eq!(problems_of(&changed[0]), ["has no static pod kube-scheduler"]);
    assert!(
        problems_of(&changed[1])[0].contains("has the static pod etcd.yaml"),
        "{:?}",
        problems_of(&changed[1])
    );
}

#[test]
fn the_command_prints_files_that_exist_and_what_is_in_folders() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| format!("{}{path}", folder.path().display());
    let mut line = command();
    for path in
        [MANIFESTS, "/var/lib/kubelet", "/etc/default", "/etc/sysconfig", "/etc/containerd", "/etc/cni/net.d"]
    {
        std::fs::create_dir_all(at(path)).unwrap();
        line = line.replace(path, &at(path));
    }
    std::fs::write(at(KUBELET_CONFIG), "kind: X\nend").unwrap();
    std::fs::write(at("/etc/cni/net.d/10-a.conflist"), "{}").unwrap();
    let done = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let files = printed_files::split(&String::from_utf8(done.stdout).unwrap()).unwrap();
    assert_eq!(files[&at(KUBELET_CONFIG)], "kind: X\nend");
    assert_eq!((files[STATIC_PODS].as_str(), files[NETWORKS].as_str()), ("", "10-a.conflist"));
    assert!(files.contains_key(DROP_INS), "{files:?}");
}
