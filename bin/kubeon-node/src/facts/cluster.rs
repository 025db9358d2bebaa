//! What this master's API server and etcd member say.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use kubeon_api::Version;
use kubeon_wire::{ClusterFacts, NodeFact};
use serde_json::Value;

use crate::api::Api;
use crate::host::Host;
use crate::https::{Https, Method};
use crate::paths;
use crate::root::Root;

/// How long one answer may take.
const LOOK: Duration = Duration::from_secs(1);

/// Asks both; `None` on a host that is no master, or where neither answers.
#[must_use]
pub fn look(host: &Host) -> Option<ClusterFacts> {
    let root = &host.root;
    if !root.at(paths::ADMIN_CERTIFICATE).exists() {
        return None;
    }
    let (etcd, (ready, version, nodes)) = thread::scope(|scope| {
        let etcd = scope.spawn(|| etcd_members(root));
        let api = api(host);
        (etcd.join().unwrap_or_default(), api)
    });
    if etcd.is_none() && ready.is_none() {
        return None;
    }
    Some(ClusterFacts {
        api_ready: ready.unwrap_or(false),
        version,
        nodes: nodes.unwrap_or_default(),
        etcd_members: etcd.unwrap_or_default(),
    })
}

type ApiSays = (Option<bool>, Option<Version>, Option<BTreeMap<String, NodeFact>>);

fn api(host: &Host) -> ApiSays {
    let Ok(api) = Api::local(host) else { return (None, None, None) };
    let Ok(ready) = api.get("/readyz", LOOK) else { return (None, None, None) };
    let json = |path| {
        let answer = api.get(path, LOOK).ok().filter(|answer| answer.status == 200)?;
        serde_json::from_str::<Value>(&answer.body).ok()
    };
    let version = json("/version").and_then(|told| version(told["gitVersion"].as_str()?));
    let nodes = json("/api/v1/nodes").map(|list| {
        let items = list["items"].as_array().into_iter().flatten();
        items.filter_map(|item| Some((item["metadata"]["name"].as_str()?.to_owned(), node(item)))).collect()
    });
    (Some(ready.status == 200), version, nodes)
}

/// The version without what a builder put behind it, such as `v1.36.3+k3s1`.
fn version(text: &str) -> Option<Version> {
    text.split(['+', '-']).next()?.parse().ok()
}

fn node(item: &Value) -> NodeFact {
    let status = &item["status"];
    let conditions = status["conditions"].as_array();
    let ready = conditions.and_then(|list| list.iter().find(|condition| condition["type"] == "Ready"));
    let is_ready = ready.is_some_and(|condition| condition["status"] == "True");
    let reason = ready.and_then(|condition| condition["message"].as_str()).unwrap_or("has not reported");
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let internal = addresses.filter(|address| address["type"] == "InternalIP");
    NodeFact {
        ready: is_ready,
        reason: if is_ready { String::new() } else { reason.to_owned() },
        kubelet: status["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().to_owned(),
        addresses: internal.filter_map(|address| address["address"].as_str()?.parse().ok()).collect(),
        unschedulable: item["spec"]["unschedulable"].as_bool().unwrap_or(false),
    }
}

/// Members by name, and whether each answers as healthy; `None` where this host's member tells nothing.
fn etcd_members(root: &Root) -> Option<BTreeMap<String, bool>> {
    let identity = (root.at(paths::ETCD_CERTIFICATE), root.at(paths::ETCD_KEY));
    let https = Https::open(&root.at(paths::ETCD_CA), Some((&identity.0, &identity.1))).ok()?;
    let url = format!("{}/v3/cluster/member/list", paths::ETCD);
    let answer = https.send(Method::Post, &url, "application/json", b"{}", LOOK).ok()?;
    let told: Value = serde_json::from_str(&answer.body).ok()?;
    let members: Vec<(String, Option<String>)> = told["members"].as_array()?.iter().map(member).collect();
    let healthy: Vec<bool> = thread::scope(|scope| {
        let asked: Vec<_> = members
            .iter()
            .map(|(_, url)| scope.spawn(|| url.as_ref().is_some_and(|url| is_healthy(&https, url))))
            .collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or(false)).collect()
    });
    Some(members.into_iter().map(|(name, _)| name).zip(healthy).collect())
}

/// A member's name and where it serves. One that was added and never started has neither: it is called by
/// the address of its peers.
fn member(member: &Value) -> (String, Option<String>) {
    let first = |key: &str| member[key].as_array().and_then(|urls| urls.first()?.as_str());
    let name = member["name"].as_str().filter(|name| !name.is_empty()).or_else(|| first("peerURLs"));
    (name.unwrap_or("unnamed").to_owned(), first("clientURLs").map(str::to_owned))
}

fn is_healthy(https: &Https, url: &str) -> bool {
    let answer = https.get(&format!("{}/health?serializable=false", url.trim_end_matches('/')), LOOK);
    answer.is_ok_and(|answer| answer.status == 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_nodes_as_the_api_tells_them() {
        let item = serde_json::json!({"spec": {"unschedulable": true}, "status": {
            "conditions": [{"type": "Ready", "status": "False", "message": "network not ready"}],
            "addresses": [{"type": "Hostname", "address": "h1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"}}});
        let fact = node(&item);
        assert!(!fact.ready && fact.unschedulable);
        assert_eq!((fact.reason.as_str(), fact.kubelet.as_str()), ("network not ready", "v1.36.3"));
        assert_eq!(fact.addresses, ["10.0.0.1".parse::<std::net::Ipv4Addr>().unwrap()]);
        assert_eq!(version("v1.36.3+k3s1"), "v1.36.3".parse().ok());
    }

    #[test]
    fn a_member_that_never_started_is_called_by_its_peer_address() {
        let added = serde_json::json!({"ID": "1", "peerURLs": ["https://10.0.0.2:2380"]});
        assert_eq!(member(&added), ("https://10.0.0.2:2380".to_owned(), None));
    }
}
