//! Signs the requests of workers on a master: each host gets certificates for its own node only, and only while the
//! node exists.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeon_pki::{CertificateRequest, Renewer};
use kubeon_wire::{CLIENT_SIGNER, HOST_USER_PREFIX, Leaf, NodeFact, SERVING_SIGNER, Usage};
use serde_json::{Value, json};

use super::leaves;
use super::report::RenewalReport;
use crate::api::{Api, message};
use crate::facts::cluster;
use crate::host::HostSystem;
use crate::paths;

/// The collection of requests.
pub(super) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest life of a certificate, in seconds: one year.
const LONGEST_LIFE: i64 = 365 * 86_400;

/// Signs or denies every open request. An API server that does not answer is not a failure: the next run, or another
/// master, signs.
pub(super) fn sign(host: &HostSystem, now: i64, report: &mut RenewalReport) {
    let signers = [(SERVING_SIGNER, paths::AUTHORITIES[3]), (CLIENT_SIGNER, paths::AUTHORITIES[0])];
    let mut nodes = None;
    for (signer, (certificate, key)) in signers {
        let authority = match leaves::authority(&host.root, certificate, key) {
            Ok(Some(authority)) => authority,
            Ok(None) => return,
            Err(failure) => return report.failures.push(failure),
        };
        let Ok(api) = Api::local(host) else { return };
        for request in open_requests(&api, signer) {
            nodes = nodes.or_else(|| cluster::nodes(&api));
            let Some(nodes) = &nodes else { return };
            report.notes.extend(answer(&api, signer, &request, nodes, &authority, now));
        }
    }
}

/// The requests of a signer that are neither signed nor denied.
fn open_requests(api: &Api, signer: &str) -> Vec<Value> {
    let path = format!("{REQUESTS}?fieldSelector=spec.signerName%3D{}&limit=500", signer.replace('/', "%2F"));
    let answer = api.get(&path, TIMEOUT).ok().filter(|answer| answer.status == 200);
    let list = answer.and_then(|answer| serde_json::from_str::<Value>(&answer.body).ok());
    let items =
        list.and_then(|mut list| list["items"].as_array_mut().map(std::mem::take)).unwrap_or_default();
    let is_open = |item: &Value| {
        let ended = |condition: &Value| matches!(condition["type"].as_str(), Some("Denied" | "Failed"));
        let conditions = item["status"]["conditions"].as_array();
        item["status"]["certificate"].is_null() && !conditions.is_some_and(|all| all.iter().any(ended))
    };
    items.into_iter().filter(is_open).collect()
}

/// Signs or denies one request; returns a note about it.
fn answer(
    api: &Api,
    signer: &str,
    item: &Value,
    nodes: &BTreeMap<String, NodeFact>,
    authority: &Renewer,
    now: i64,
) -> Option<String> {
    let name = item["metadata"]["name"].as_str()?;
    let user = item["spec"]["username"].as_str()?;
    let path = format!("{REQUESTS}/{name}");
    let decide = |kind: &str, reason: &str| {
        let condition = json!({ "type": kind, "status": "True", "reason": "KubeonHost", "message": reason });
        let body = json!({ "status": { "conditions": [condition] } });
        api.merge(&format!("{path}/approval"), &body, TIMEOUT)
    };
    let checked = request(item, name).and_then(|request| match refusal(signer, &request.leaf, user, nodes) {
        Some(reason) => Err(reason),
        None => Ok(request),
    });
    let request = match checked {
        Ok(request) => request,
        Err(reason) => {
            return decide("Denied", &reason)
                .is_ok()
                .then(|| format!("denied {user} a certificate: {reason}"));
        }
    };
    let life = item["spec"]["expirationSeconds"].as_i64().unwrap_or(LONGEST_LIFE).min(LONGEST_LIFE);
    let certificate = match authority.sign(&request, life, now) {
        Ok(certificate) => certificate,
        Err(error) => return Some(format!("cannot sign {name}: {error}")),
    };
    let body = json!({ "status": { "certificate": STANDARD.encode(certificate) } });
    let stored = decide("Approved", "the host requests a certificate for its own node")
        .and_then(|_| api.merge(&format!("{path}/status"), &body, TIMEOUT));
    match stored {
        Ok(answer) if answer.status == 200 => Some(format!("signed {} for {user}", request.leaf.common_name)),
        // Another master was faster.
        Ok(answer) if answer.status == 409 => None,
        Ok(answer) => Some(format!("cannot sign {name}: {}", message(&answer.body))),
        Err(why) => Some(format!("cannot sign {name}: {why}")),
    }
}

fn request(item: &Value, name: &str) -> Result<CertificateRequest, String> {
    let text = item["spec"]["request"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or("the request is not PEM")?;
    CertificateRequest::parse(&text, name).map_err(|error| error.to_string())
}

/// Why the user does not get the certificate; `None` if it is for the node of the user's host.
fn refusal(signer: &str, leaf: &Leaf, user: &str, nodes: &BTreeMap<String, NodeFact>) -> Option<String> {
    let Some(node) = user.strip_prefix(HOST_USER_PREFIX) else {
        return Some(format!("{user} is not a host of kubeon"));
    };
    let Some(fact) = nodes.get(node) else { return Some(format!("node {node} does not exist")) };
    if leaf.common_name != format!("system:node:{node}") {
        return Some(format!("{user} requests a certificate for {}", leaf.common_name));
    }
    let own = |address: &Ipv4Addr| {
        let others = nodes.iter().filter(|(name, _)| *name != node);
        address.is_loopback()
            || fact.addresses.contains(address)
                && !others.into_iter().any(|(_, other)| other.addresses.contains(address))
    };
    let is_allowed = match signer {
        SERVING_SIGNER => {
            leaf.usage == Usage::Server
                && leaf.organizations.is_empty()
                && leaf.dns_names.iter().all(|name| name == "localhost" || name == node)
                && leaf.addresses.iter().all(own)
        }
        _ => {
            leaf.usage == Usage::Client
                && leaf.organizations == ["system:nodes"]
                && leaf.dns_names.is_empty()
                && leaf.addresses.is_empty()
        }
    };
    (!is_allowed).then(|| format!("the names, groups or usage are not those of node {node}"))
}

#[cfg(test)]
mod tests {
    use kubeon_wire::CertificateAuthority;

    use super::*;

    fn nodes() -> BTreeMap<String, NodeFact> {
        let node =
            |address: &str| NodeFact { addresses: vec![address.parse().unwrap()], ..NodeFact::default() };
        [("h2".to_owned(), node("10.0.0.2")), ("h3".to_owned(), node("10.0.0.3"))].into()
    }

    fn serving() -> Leaf {
        Leaf {
            ca: CertificateAuthority::KubeletServing,
            common_name: "system:node:h2".to_owned(),
            organizations: Vec::new(),
            dns_names: vec!["localhost".to_owned(), "h2".to_owned()],
            addresses: vec![Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 2)],
            usage: Usage::Server,
            hours: 1,
        }
    }

    fn client() -> Leaf {
        Leaf {
            organizations: vec!["system:nodes".to_owned()],
            dns_names: Vec::new(),
            addresses: Vec::new(),
            usage: Usage::Client,
            ..serving()
        }
    }

    #[test]
    fn a_host_gets_certificates_for_its_own_node() {
        assert_eq!(refusal(SERVING_SIGNER, &serving(), "kubeon:host:h2", &nodes()), None);
        assert_eq!(refusal(CLIENT_SIGNER, &client(), "kubeon:host:h2", &nodes()), None);
    }

    #[test]
    fn a_host_gets_no_certificate_for_another_node_or_another_right() {
        let refused = |signer, leaf: Leaf, user: &str| refusal(signer, &leaf, user, &nodes()).is_some();
        assert!(refused(SERVING_SIGNER, serving(), "kubeon:host:h3"));
        assert!(refused(CLIENT_SIGNER, client(), "kubeon:host:h3"));
        assert!(refused(CLIENT_SIGNER, client(), "system:node:h2"));
        assert!(refused(CLIENT_SIGNER, serving(), "kubeon:host:h2"));
        assert!(refused(SERVING_SIGNER, client(), "kubeon:host:h2"));
        let masters = Leaf { organizations: vec!["system:masters".to_owned()], ..client() };
        assert!(refused(CLIENT_SIGNER, masters, "kubeon:host:h2"));
        let name = Leaf { dns_names: vec!["h3".to_owned()], ..serving() };
        assert!(refused(SERVING_SIGNER, name, "kubeon:host:h2"));
        let address = Leaf { addresses: vec![Ipv4Addr::new(10, 0, 0, 3)], ..serving() };
        assert!(refused(SERVING_SIGNER, address, "kubeon:host:h2"));
    }

    #[test]
    fn a_claimed_address_of_another_node_is_refused() {
        let mut nodes = nodes();
        nodes.get_mut("h2").unwrap().addresses.push(Ipv4Addr::new(10, 0, 0, 3));
        let address = Leaf { addresses: vec![Ipv4Addr::new(10, 0, 0, 3)], ..serving() };
        assert!(refusal(SERVING_SIGNER, &address, "kubeon:host:h2", &nodes).is_some());
    }

    #[test]
    fn the_identity_of_a_removed_node_gets_nothing() {
        let mut nodes = nodes();
        nodes.remove("h2");
        let reason = refusal(CLIENT_SIGNER, &client(), "kubeon:host:h2", &nodes);
        assert_eq!(reason.as_deref(), Some("node h2 does not exist"));
    }
}
