//! The declaration of a cluster of kubeadm.

use kubeon_plan::validate_existing;
use serde_json::json;

use super::*;
use crate::adoption::kubeadm::host::tests::{hosts, replace};
use crate::adoption::kubeadm::objects::tests::configured;

const API_SERVER: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";

fn name() -> ClusterName {
    "demo".parse().unwrap()
}

/// The reasons of a refusal, each in one line.
fn reasons(objects: &KubeadmObjects, hosts: &[KubeadmHost]) -> Vec<String> {
    let reasons = desired(&name(), objects, hosts).unwrap_err();
    reasons.into_iter().map(|(subject, text)| format!("{subject} {text}")).collect()
}

#[test]
fn kubeon_keeps_what_kubeadm_decided() {
    let objects = configured(|configuration| {
        configuration["apiServer"]["certSANs"] = json!(["api.example.com", "10.0.0.1"]);
    });
    let hosts = hosts(|_, _, files| {
        if files.contains_key(API_SERVER) {
            replace(files, API_SERVER, "--secure-port=6443", "--secure-port=6443\n    - --event-ttl=2h");
        }
    });
    let spec = desired(&name(), &objects, &hosts).unwrap();
    let settings = &spec.settings;
    assert_eq!((settings.deploy_mode, settings.cni), (DeployMode::Container, Cni::None));
    assert_eq!(
        (settings.pod_cidr.to_string(), settings.service_cidr.to_string()),
        ("10.96.0.0/12".to_owned(), "10.64.0.0/12".to_owned())
    );
    assert_eq!(
        (settings.proxy_mode, settings.max_pods, settings.node_mask_size),
        (ProxyMode::Nftables, 110, 24)
    );
    assert_eq!(settings.extra_args.kube_apiserver["event-ttl"], "2h");
    let names: Vec<String> = settings.cert_sans.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["api.example.com", "10.0.0.1"], "the endpoint is one of them");
    assert_eq!(
        (spec.masters.len(), spec.workers.len(), spec.version.to_string()),
        (1, 1, "v1.36.3".to_owned())
    );
    assert_eq!(spec.workers[0].name.as_ref().map(ToString::to_string).as_deref(), Some("h2"));
    validate_existing(spec.clone(), &[spec.version]).unwrap();
}

#[test]
fn arguments_that_kubeon_sets_itself_are_refused_by_the_plan() {
    let hosts = hosts(|_, _, files| {
        if files.contains_key(API_SERVER) {
            replace(files, API_SERVER, "--secure-port=6443", "--secure-port=6443\n    - --audit-log-path=/x");
        }
    });
    let spec = desired(&name(), &configured(|_| ()), &hosts).unwrap();
    let refused = validate_existing(spec.clone(), &[spec.version]).unwrap_err();
    let values: Vec<&str> = refused.refusals.iter().map(|refusal| refusal.value.as_str()).collect();
    assert!(values.contains(&"spec.cluster.extraArgs.kubeApiserver.audit-log-path"), "{values:?}");
}

#[test]
fn all_reasons_are_told_at_once() {
    let mut objects = configured(|configuration| {
        configuration["networking"]["podSubnet"] = json!("10.96.0.0/12,fd00::/64");
    });
    objects.proxy_mode = Some("ipvs".to_owned());
    let hosts = hosts(|index, _, files| {
        if index == 0 {
            replace(files, API_SERVER, "svc.cluster.local", "svc.example.com");
        } else {
            replace(files, "/var/lib/kubelet/config.yaml", "memorySwap: {}", "maxPods: 50");
        }
    });
    let found = reasons(&objects, &hosts);
    for words in [
        "networking.podSubnet 10.96.0.0/12,fd00::/64; kubeon needs one IPv4 network",
        "kube-proxy has mode ipvs",
        "service-account-issuer is https://kubernetes.default.svc.example.com",
        "maxPods differs between the nodes: 50, 110",
    ] {
        assert!(found.iter().any(|reason| reason.starts_with(words)), "{words}: {found:?}");
    }
    objects.proxy_mode = None;
    let found = reasons(&objects, &hosts);
    assert!(found.iter().any(|reason| reason.starts_with("kube-proxy does not run")), "{found:?}");
}
