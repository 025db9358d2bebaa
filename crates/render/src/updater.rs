//! The load balancer `updater`: a Service of the cluster whose endpoints are the live API servers. The names of its unit, Service
//! and files are those of the seed.

use std::net::Ipv4Addr;

use kubeon_wire::{API_SERVICE, ApiObject, ApiWay};
use serde_json::json;

use crate::config::pretty;
use crate::sandbox::{AGENT, CONFINED};
use crate::systemd::ServiceUnit;

/// The unit of a master that keeps the endpoints of the Service.
pub const PUBLISHER: &str = "apiserver-updater.service";
/// The unit of a worker that keeps the API's name leading to an API server that answers.
pub const STARTUP: &str = "apiserver-startup.service";

const NODE_PROGRAM: &str = "/var/lib/kubeon/node/current";

/// The Service of the API servers. It has no selector: the masters write its endpoints.
#[must_use]
pub fn service(address: Ipv4Addr, port: u16) -> ApiObject {
    ApiObject {
        path: format!("/api/v1/namespaces/kube-system/services/{API_SERVICE}"),
        body: json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": API_SERVICE, "namespace": "kube-system" },
            "spec": {
                "clusterIP": address.to_string(),
                "ports": [{ "name": "https", "port": port, "protocol": "TCP", "targetPort": port }],
            },
        }),
    }
}

/// The URL paths of the Service and of its endpoints.
#[must_use]
pub fn objects() -> Vec<String> {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    vec![format!("/api/v1/namespaces/kube-system/services/{API_SERVICE}"), format!("{slices}/{API_SERVICE}")]
}

/// `apiserver-updater.service`.
#[must_use]
pub fn publisher() -> String {
    ServiceUnit {
        description: "Endpoints of the Service of the API servers",
        notify: false,
        after: "network-online.target kube-apiserver.service",
        environment: &[],
        service: &[],
        sandbox: CONFINED,
        command: NODE_PROGRAM.to_owned(),
        arguments: vec!["publish-api".into()],
    }
    .text()
}

/// `apiserver-startup.service`: it runs from before the start of the kubelet to the end of the host. What it wrote ends with
/// it, also if it is killed.
#[must_use]
pub fn startup() -> String {
    let end = format!("ExecStopPost={NODE_PROGRAM} reach-api --end");
    ServiceUnit {
        description: "Way of this worker to the API servers",
        notify: false,
        after: "network-online.target",
        environment: &[],
        service: &[&end],
        sandbox: AGENT,
        command: NODE_PROGRAM.to_owned(),
        arguments: vec!["reach-api".into()],
    }
    .text()
    .replacen("\nAfter=", "\nBefore=kubelet.service kube-proxy.service flanneld.service\nAfter=", 1)
}

/// The file that the unit of a worker reads.
#[must_use]
pub fn way(way: &ApiWay) -> String {
    pretty(&json!(way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_worker_starts_before_the_kubelet_and_leaves_nothing() {
        let unit = startup();
        assert!(unit.contains("\nBefore=kubelet.service "), "{unit}");
        assert!(unit.contains("\nExecStopPost=/var/lib/kubeon/node/current reach-api --end\n"), "{unit}");
        assert!(unit.contains("Restart=always"), "{unit}");
    }

    #[test]
    fn the_service_has_a_fixed_address_and_no_selector() {
        let service = service(Ipv4Addr::new(10, 64, 0, 15), 6443);
        assert_eq!(service.body["spec"]["clusterIP"], "10.64.0.15");
        assert!(service.body["spec"].get("selector").is_none());
        assert_eq!(objects()[0], service.path);
    }
}
