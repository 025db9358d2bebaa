//! Checks that packets cross the overlay network: the pods of the cluster's DNS on other nodes are asked at their own
//! addresses. The Service address would do with a pod on this host.

use std::net::Ipv4Addr;
use std::time::Duration;

use kubeon_api::HostName;
use serde::Deserialize;

use crate::api::{Api, message};

const PODS: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices\
                    ?labelSelector=kubernetes.io%2Fservice-name%3Dkube-dns";
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of pods that are asked: one host with a closed port is found by itself.
const MAX_PODS: usize = 4;

/// A ready pod of the cluster's DNS.
#[derive(Debug, PartialEq, Eq)]
struct DnsPod {
    node: String,
    address: Ipv4Addr,
}

/// Asks the pods on other nodes than `own`. If every pod is on this node, the other nodes prove the way to it.
///
/// # Errors
/// The pod that does not answer, and what its node and this one must let through.
pub(super) fn prove(
    api: &Api,
    own: &HostName,
    ask: &dyn Fn(Ipv4Addr) -> Result<(), String>,
) -> Result<(), String> {
    let pods = ready_pods(api)?;
    if pods.is_empty() {
        return Err("no pod of the cluster's DNS is ready".to_owned());
    }
    let others = pods.iter().filter(|pod| pod.node != own.as_str());
    others.take(MAX_PODS).try_for_each(|DnsPod { node, address }| {
        ask(*address).map_err(|why| {
            format!(
                "{own} does not reach the pod {address} on {node} ({why}): the firewalls of {own} and {node} must let in \
                 UDP port 8472 from each other, and forward packets of the pod network"
            )
        })
    })
}

fn ready_pods(api: &Api) -> Result<Vec<DnsPod>, String> {
    let answer = api.get(PODS, TIMEOUT).map_err(|why| format!("the API server does not answer: {why}"))?;
    if answer.status != 200 {
        return Err(format!("cannot list the pods of the cluster's DNS: {}", message(&answer.body)));
    }
    parse(&answer.body)
}

#[derive(Deserialize)]
struct SliceList {
    items: Vec<Slice>,
}

#[derive(Deserialize)]
struct Slice {
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
}

fn parse(body: &str) -> Result<Vec<DnsPod>, String> {
    let list: SliceList = serde_json::from_str(body)
        .map_err(|error| format!("the list of the pods of the cluster's DNS cannot be read: {error}"))?;
    let endpoints = list.items.into_iter().filter_map(|slice| slice.endpoints).flatten();
    let ready = endpoints.filter(|endpoint| endpoint.conditions.ready != Some(false));
    let pod = |endpoint: Endpoint| {
        let address = endpoint.addresses.iter().find_map(|address| address.parse().ok())?;
        Some(DnsPod { node: endpoint.node_name, address })
    };
    Ok(ready.filter_map(pod).collect())
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::paths;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    fn slices(pods: &[(&str, &str, bool)]) -> String {
        let endpoints: Vec<_> = pods
            .iter()
            .map(|(node, address, ready)| {
                serde_json::json!({"addresses": [address], "nodeName": node, "conditions": {"ready": ready}})
            })
            .collect();
        serde_json::json!({"items": [{"endpoints": endpoints}, {"endpoints": null}]}).to_string()
    }

    /// A client with the identity of the node: certificate and key in one file.
    fn node_client(bench: &Bench) -> Api {
        let identity = bench.read(paths::ADMIN_CERTIFICATE) + &bench.read(paths::ADMIN_KEY);
        bench.write(paths::KUBELET_OWN, &identity);
        let config = serde_json::json!({"clusters": [{"cluster": {"server": bench.host.api}}]});
        bench.write("/etc/kubernetes/kube-proxy.conf", &config.to_string());
        Api::as_node(&bench.host).unwrap()
    }

    /// The result on h1 if only the addresses in `answering` answer, and the addresses that were asked.
    fn proved(pods: &[(&str, &str, bool)], answering: &[&str]) -> (Result<(), String>, Vec<String>) {
        let mut bench = Bench::new();
        let body = slices(pods);
        serve(&mut bench, move |_, path, _| {
            assert_eq!(path, PODS);
            Reply::Json(200, body.clone())
        });
        let asked = Mutex::new(Vec::new());
        let ask = |address: Ipv4Addr| {
            asked.lock().push(address.to_string());
            let answers = answering.contains(&address.to_string().as_str());
            if answers { Ok(()) } else { Err("no answer".to_owned()) }
        };
        let result = prove(&node_client(&bench), &"h1".parse().unwrap(), &ask);
        (result, asked.into_inner())
    }

    #[test]
    fn only_pods_on_other_nodes_prove_the_overlay() {
        let pods = [("h1", "10.244.0.2", true), ("h2", "10.244.1.2", true)];
        assert_eq!(proved(&pods, &["10.244.1.2"]), (Ok(()), vec!["10.244.1.2".to_owned()]));
        let (dead, _) = proved(&pods, &["10.244.0.2"]);
        let dead = dead.unwrap_err();
        assert!(dead.starts_with("h1 does not reach the pod 10.244.1.2 on h2 (no answer)"), "{dead}");
        assert!(dead.contains("firewalls of h1 and h2 must let in UDP port 8472"), "{dead}");
    }

    #[test]
    fn every_other_pod_is_asked_and_pods_that_are_not_ready_are_not() {
        let pods = [("h2", "10.244.1.2", true), ("h3", "10.244.2.2", true), ("h4", "10.244.3.2", false)];
        assert_eq!(proved(&pods, &["10.244.1.2", "10.244.2.2"]).1, ["10.244.1.2", "10.244.2.2"]);
        assert!(proved(&pods, &["10.244.1.2"]).0.unwrap_err().contains("on h3"));
        assert!(proved(&[("h2", "10.244.1.2", false)], &[]).0.unwrap_err().contains("no pod"));
    }

    #[test]
    fn a_node_with_every_pod_is_proved_by_the_other_nodes() {
        let (own, asked) = proved(&[("h1", "10.244.0.2", true), ("h1", "10.244.0.3", true)], &[]);
        assert_eq!((own, asked.len()), (Ok(()), 0));
    }

    #[test]
    fn an_answer_without_a_list_is_an_error() {
        let mut bench = Bench::new();
        serve(&mut bench, |_, _, _| Reply::Json(403, r#"{"message":"forbidden"}"#.to_owned()));
        let api = node_client(&bench);
        let denied = prove(&api, &"h1".parse().unwrap(), &|_| Ok(())).unwrap_err();
        assert!(denied.ends_with("forbidden"), "{denied}");
        assert!(parse("[]").is_err());
    }
}
