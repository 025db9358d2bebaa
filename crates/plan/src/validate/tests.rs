use kubeon_api::RefusedField;
use kubeon_api::kubernetes_cluster::{ClusterSettings, DeployMode, LoadBalancer, ProxyMode};

use super::*;
use crate::sim::cluster as spec;

fn subjects(spec: DesiredCluster) -> Vec<String> {
    let error = validate(spec, &["v1.36.3".parse().unwrap()]).unwrap_err();
    error.refusals.into_iter().map(|refusal| format!("{} {}", refusal.field, refusal.value)).collect()
}

#[test]
fn arguments_that_kubeon_sets_are_refused_by_name() {
    let mut with_extra = spec(&["172.30.0.11"], &[]);
    let arguments = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    with_extra.settings.extra_args.kube_apiserver =
        arguments(&[("audit-log-maxage", "1"), ("event-ttl", "2h"), ("--v", "4")]);
    with_extra.settings.extra_args.kubelet =
        arguments(&[("max-pods", "5"), ("v", "2"), ("image-gc", "a\nb")]);
    assert_eq!(
        subjects(with_extra),
        [
            "setting spec.cluster.extraArgs.kubeApiserver.--v",
            "setting spec.cluster.extraArgs.kubeApiserver.audit-log-maxage",
            "setting spec.cluster.extraArgs.kubelet.image-gc",
            "setting spec.cluster.extraArgs.kubelet.max-pods",
        ]
    );
}

#[test]
fn kernel_parameters_that_the_cluster_sets_are_refused_with_the_reason() {
    let mut with_parameters = spec(&["172.30.0.11"], &[]);
    with_parameters.settings.kernel_parameters = [
        ("vm.max_map_count", "262144"),
        ("net.ipv4.tcp_mem", "1 2 3"),
        ("net.ipv4.ip_forward", "0"),
        ("vm.overcommit_memory", "0"),
        ("net.ipv4.conf.all.forwarding", "0"),
        ("net.netfilter.nf_conntrack_max", "9"),
        ("swappiness", "1"),
        ("vm/swappiness", "1"),
        ("vm.swappiness", "1\nkernel.panic = 0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let error = validate(with_parameters, &["v1.36.3".parse().unwrap()]).unwrap_err();
    let found: Vec<_> = error
        .refusals
        .iter()
        .map(|refusal| {
            let name = refusal.value.trim_start_matches("spec.cluster.kernelParameters.");
            format!("{name} {}", refusal.reason)
        })
        .collect();
    assert_eq!(
        found,
        [
            "net.ipv4.conf.all.forwarding is net.ipv4.ip_forward by another name, which kubeon sets",
            "net.ipv4.ip_forward is set to 1 by kubeon: the node needs it",
            "net.netfilter.nf_conntrack_max is set by kube-proxy when it starts",
            "swappiness is not the name of a kernel parameter, such as vm.max_map_count",
            "vm.overcommit_memory is set to 1 by kubeon: the node needs it",
            "vm.swappiness needs a value of one line, such as 262144",
            "vm/swappiness is not the name of a kernel parameter, such as vm.max_map_count",
        ]
    );
}

#[test]
fn taints_of_others_and_contradicting_ones_are_refused() {
    let taints = |texts: &[(&str, &str)]| {
        let taint = |(key, value): &(&str, &str)| {
            let taint = serde_json::json!({"key": key, "value": value, "effect": "NoSchedule"});
            serde_json::from_value(taint).unwrap()
        };
        texts.iter().map(taint).collect()
    };
    let mut tainted = spec(&["172.30.0.11"], &["172.30.0.12"]);
    tainted.workers[0].taints = taints(&[("dedicated", "gpu"), ("example.com/a", "")]);
    assert!(validate(tainted.clone(), &["v1.36.3".parse().unwrap()]).is_ok());
    tainted.workers[0].taints = taints(&[("a", "1"), ("a", "2"), ("node.kubernetes.io/not-ready", "")]);
    tainted.masters[0].taints = taints(&[("node-role.kubernetes.io/control-plane", "")]);
    assert_eq!(
        subjects(tainted),
        [
            "setting taint node-role.kubernetes.io/control-plane:NoSchedule of 172.30.0.11",
            "setting taint a=2:NoSchedule of 172.30.0.12",
            "setting taint node.kubernetes.io/not-ready:NoSchedule of 172.30.0.12",
        ]
    );
}

#[test]
fn a_plain_cluster_is_accepted_with_the_warning_about_flannel() {
    let (_, notes) =
        validate(spec(&["172.30.0.11"], &["172.30.0.12"]), &["v1.36.3".parse().unwrap()]).unwrap();
    let texts: Vec<_> = notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(texts, ["flannel enforces no NetworkPolicy: every pod reaches every pod"]);
}

#[test]
fn reports_all_reasons_at_once() {
    let mut wrong = spec(&["172.30.0.11", "172.30.0.11"], &["172.30.0.11", "172.30.0.12", "172.30.0.12"]);
    wrong.settings.pod_cidr = "10.64.0.0/12".parse().unwrap();
    wrong.version = "v1.29.9".parse().unwrap();
    assert_eq!(
        subjects(wrong),
        [
            "version v1.29.9",
            "master 172.30.0.11",
            "worker 172.30.0.11",
            "worker 172.30.0.12",
            "podCIDR 10.64.0.0/12"
        ]
    );
}

#[test]
fn refuses_a_cluster_without_a_master() {
    assert_eq!(subjects(spec(&[], &["172.30.0.12"])), ["master "]);
}

#[test]
fn refuses_a_host_inside_the_cluster_networks() {
    assert_eq!(subjects(spec(&["10.96.0.4"], &[])), ["podCIDR 10.96.0.0/12"]);
}

#[test]
fn refuses_more_hosts_than_the_pod_network_has_ranges() {
    let mut small = spec(&["172.30.0.11"], &["172.30.0.12", "172.30.0.13"]);
    small.settings.pod_cidr = "10.96.0.0/23".parse().unwrap();
    assert_eq!(subjects(small), ["nodeMaskSize 24"]);
}

#[test]
fn a_new_cluster_has_no_node_ports_over_ports_of_its_own_programs() {
    let versions = ["v1.36.3".parse().unwrap()];
    let with = |range: &str| {
        let mut spec = spec(&["172.30.0.11"], &[]);
        spec.settings.node_ports = range.parse().unwrap();
        spec
    };
    for (range, ports) in [
        ("10000-30000", "ports 10248, 10249, 10250, 10256, 10257, 10259, 10270"),
        ("6443-6443", "port 6443"),
        ("8000-9000", "port 8472"),
        ("2000-2380", "ports 2379, 2380"),
    ] {
        let refused = validate(with(range), &versions).unwrap_err().refusals;
        assert!(refused[0].reason.starts_with(&format!("covers {ports}, on which")), "{:?}", refused[0]);
        assert_eq!(refused[0].remedy, Some(Remedy::Change(RefusedField::NodePortRange)));
        assert!(validate_existing(with(range), &versions).is_ok(), "an existing cluster keeps {range}");
    }
    assert!(validate(with("30000-32767"), &versions).is_ok());
    assert!(validate(with("10271-32767"), &versions).is_ok());
}

#[test]
fn static_pods_see_no_files_of_other_folders_and_run_on_no_host_of_etcd_alone() {
    let mut container = spec(&["172.30.0.11"], &["172.30.0.12"]);
    container.settings.deploy_mode = DeployMode::Container;
    assert!(validate(container.clone(), &["v1.36.3".parse().unwrap()]).is_ok());
    container.etcd_hosts = vec![HostSpec::at("172.30.0.13".parse().unwrap())];
    let arguments = |value: &str| BTreeMap::from([("tracing-config-file".to_owned(), value.to_owned())]);
    container.settings.extra_args.kube_apiserver = arguments("/root/tracing.yaml");
    container.settings.extra_args.kubelet = arguments("/root/tracing.yaml");
    container.settings.extra_args.kube_scheduler = arguments("/etc/kubernetes/tracing.yaml");
    assert_eq!(
        subjects(container.clone()),
        [
            "setting spec.cluster.deployMode",
            "setting spec.cluster.extraArgs.kubeApiserver.tracing-config-file"
        ]
    );
    container.settings.deploy_mode = DeployMode::Binary;
    assert!(validate(container, &["v1.36.3".parse().unwrap()]).is_ok());
}

#[test]
fn refuses_unsupported_settings_by_field() {
    let mut unsupported = spec(&["172.30.0.11"], &[]);
    unsupported.settings = ClusterSettings { proxy_mode: ProxyMode::Ipvs, ..unsupported.settings };
    assert_eq!(subjects(unsupported), ["setting spec.cluster.network.proxyMode"]);
    let mut named = spec(&["172.30.0.11"], &[]);
    named.settings.load_balancer =
        LoadBalancer::External { address: "lb.example.com".parse().unwrap(), port: 6443 };
    assert_eq!(subjects(named), ["setting spec.cluster.loadBalancer.address"]);
}

#[test]
fn the_service_of_the_api_servers_needs_a_fifteenth_address() {
    let with = |services: &str| {
        let mut spec = spec(&["172.30.0.11"], &[]);
        spec.settings.load_balancer = LoadBalancer::Updater;
        spec.settings.service_cidr = services.parse().unwrap();
        spec
    };
    assert!(validate(with("10.64.0.0/27"), &["v1.36.3".parse().unwrap()]).is_ok());
    assert_eq!(subjects(with("10.64.0.0/28")).len(), 1);
}

#[test]
fn certificate_authorities_are_valid_for_1_to_100_years() {
    for (years, refused) in [(0, true), (1, false), (100, false), (101, true), (1000, true)] {
        let mut spec = spec(&["172.30.0.11"], &[]);
        spec.settings.ca_years = years;
        let refusals = match validate(spec, &["v1.36.3".parse().unwrap()]) {
            Ok(_) => Vec::new(),
            Err(error) => error.refusals,
        };
        assert_eq!(refusals.len(), usize::from(refused), "{years}: {refusals:?}");
        for refusal in refusals {
            assert_eq!((refusal.field, refusal.value), (RefusedField::CaYears, years.to_string()));
            assert_eq!(refusal.reason, "must lie between 1 and 100");
        }
    }
}

#[test]
fn warns_about_an_even_number_of_masters() {
    let (_, notes) =
        validate(spec(&["172.30.0.11", "172.30.0.12"], &[]), &["v1.36.3".parse().unwrap()]).unwrap();
    assert_eq!(notes[1].text, "2 masters tolerate no more failures than 1; use 1, 3 or 5");
}
