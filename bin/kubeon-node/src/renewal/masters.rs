//! A worker that was off while masters joined learns them from the masters that it still knows, so that its programs reach
//! the API after the last of those has left. It forgets none: that is up to the next plan, which finds the changed file and
//! writes its own.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use kubeon_render::{config, updater};
use kubeon_wire::{API_WAY_FILE, ApiWay, Claim, StepFailure};
use serde_json::Value;

use super::lock;
use super::report::RenewalReport;
use crate::api::Api;
use crate::durable::{read_text, write_file};
use crate::failure::failed;
use crate::host::HostSystem;
use crate::{paths, units};

const CONFIG: &str = "/etc/kubernetes/haproxy.cfg";
const UNIT: &str = "haproxy.service";
/// The same as a static pod.
const POD: &str = "haproxy.pod";
/// The API servers that serve: each keeps its own address there.
const SERVING: &str =
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?fieldSelector=metadata.name%3Dkubernetes";
const NODES: &str = "/api/v1/nodes?labelSelector=node-role.kubernetes.io%2Fcontrol-plane";
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Adds the masters that this worker does not know: to its haproxy, or to those that stand in for the Service of the API servers.
/// Without an answer of the API nothing changes: the next run
/// follows within minutes.
pub(super) fn learn(host: &HostSystem, claim: &Claim, report: &mut RenewalReport) {
    // A worker that joins has no identity yet.
    if !host.root.at(paths::KUBELET_OWN).exists() {
        return;
    }
    for learned in [add_to_haproxy(host, claim), add_to_way(host, claim)] {
        match learned {
            Ok(note) => report.notes.extend(note),
            Err(failure) => report.failures.push(failure),
        }
    }
}

fn add_to_haproxy(host: &HostSystem, claim: &Claim) -> Result<Option<String>, StepFailure> {
    let place = host.root.at(CONFIG);
    let Some(text) = read_text(&place)? else { return Ok(None) };
    let mut masters = servers(&text);
    let new = unknown(&Api::as_node(host)?, &masters);
    if new.is_empty() {
        return Ok(None);
    }
    let _lock = match lock::take(&host.root, claim)? {
        Ok(lock) => lock,
        Err(busy) => return Ok(Some(busy.notes.join("; "))),
    };
    let names: Vec<String> = new.iter().map(|(name, _)| name.clone()).collect();
    masters.extend(new);
    write_file(&place, config::haproxy(&masters).as_bytes(), 0o644)?;
    let unit = if units::file(&host.root, POD).exists() { POD } else { UNIT };
    if let Err(failure) = host.services.reload_unit(unit, Instant::now() + RELOAD_TIMEOUT) {
        // The next run must find the masters unknown again, or haproxy would never read them.
        write_file(&place, text.as_bytes(), 0o644)?;
        return Err(failure);
    }
    Ok(Some(format!("haproxy learned the masters {}", names.join(", "))))
}

fn add_to_way(host: &HostSystem, claim: &Claim) -> Result<Option<String>, StepFailure> {
    let place = host.root.at(API_WAY_FILE);
    let Some(text) = read_text(&place)? else { return Ok(None) };
    let mut way: ApiWay =
        serde_json::from_str(&text).map_err(|error| failed(format!("{API_WAY_FILE}: {error}")))?;
    let new: Vec<Ipv4Addr> =
        serving(&Api::as_node(host)?).into_iter().filter(|address| !way.masters.contains(address)).collect();
    if new.is_empty() {
        return Ok(None);
    }
    let _lock = match lock::take(&host.root, claim)? {
        Ok(lock) => lock,
        Err(busy) => return Ok(Some(busy.notes.join("; "))),
    };
    let addresses: Vec<String> = new.iter().map(ToString::to_string).collect();
    way.masters.extend(new);
    write_file(&place, updater::way(&way).as_bytes(), 0o600)?;
    Ok(Some(format!("this worker learned the masters {}", addresses.join(", "))))
}

/// The masters in the configuration of haproxy: `  server NAME ADDRESS:PORT`.
fn servers(text: &str) -> Vec<(String, Ipv4Addr)> {
    let server = |line: &str| {
        let (name, address) = line.trim_start().strip_prefix("server ")?.split_once(' ')?;
        Some((name.to_owned(), address.split(':').next()?.parse().ok()?))
    };
    text.lines().filter_map(server).collect()
}

/// The masters whose API servers serve and that are not among the known ones.
fn unknown(api: &Api, known: &[(String, Ipv4Addr)]) -> Vec<(String, Ipv4Addr)> {
    let mut serving = serving(api);
    serving.retain(|address| known.iter().all(|(_, known)| known != address));
    if serving.is_empty() {
        return Vec::new();
    }
    let named = |node: &Value| {
        let name = node["metadata"]["name"].as_str()?.to_owned();
        let addresses = node["status"]["addresses"].as_array()?;
        let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
        Some((name, internal["address"].as_str()?.parse().ok()?))
    };
    let nodes = items(api, NODES);
    nodes.iter().filter_map(named).filter(|(_, address)| serving.contains(address)).collect()
}

/// The addresses of the API servers that serve; none without an answer.
fn serving(api: &Api) -> BTreeSet<Ipv4Addr> {
    items(api, SERVING)
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default())
        .flat_map(|endpoint| endpoint["addresses"].as_array().cloned().unwrap_or_default())
        .filter_map(|address| address.as_str()?.parse().ok())
        .collect()
}

/// The items of a list; none without an answer.
fn items(api: &Api, path: &str) -> Vec<Value> {
    let answer = api.get(path, TIMEOUT).ok().filter(|answer| answer.status == 200);
    let list: Option<Value> = answer.and_then(|answer| serde_json::from_str(&answer.body).ok());
    list.and_then(|mut list| list["items"].as_array_mut().map(std::mem::take)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{self, Reply};

    fn masters(addresses: &[(&str, u8)]) -> Vec<(String, Ipv4Addr)> {
        addresses.iter().map(|(name, last)| ((*name).to_owned(), Ipv4Addr::new(10, 0, 0, *last))).collect()
    }

    /// A worker that knows these masters, and an API server that lists the masters h1 to h4, of which the first three serve.
    fn worker(known: &[(&str, u8)]) -> Bench {
        let mut bench = Bench::new();
        testing_api::serve(&mut bench, |_, path, _| {
            let items = if path == SERVING {
                json!([{ "endpoints": [{ "addresses": ["10.0.0.1", "10.0.0.2"] }, { "addresses": ["10.0.0.3"] }] }])
            } else {
                let node = |n: u8| {
                    json!({ "metadata": { "name": format!("h{n}") }, "status": { "addresses": [
                        { "type": "Hostname", "address": "x" },
                        { "type": "InternalIP", "address": format!("10.0.0.{n}") }] } })
                };
                json!([node(1), node(2), node(3), node(4)])
            };
            Reply::Json(200, json!({ "items": items }).to_string())
        });
        let identity = bench.read(paths::ADMIN_CERTIFICATE) + &bench.read(paths::ADMIN_KEY);
        bench.write(paths::KUBELET_OWN, &identity);
        let server = json!({ "clusters": [{ "cluster": { "server": bench.host.api } }] });
        bench.write("/etc/kubernetes/kube-proxy.conf", &server.to_string());
        bench.write(CONFIG, &config::haproxy(&masters(known)));
        bench
    }

    fn learned(bench: &Bench) -> RenewalReport {
        let claim = Claim {
            cluster: "demo".parse().unwrap(),
            uid: "u1".to_owned(),
            generation: 3,
            version: "v1.36.3".parse().unwrap(),
            role: kubeon_api::HostRole::Worker,
        };
        let mut report = RenewalReport::default();
        learn(&bench.host, &claim, &mut report);
        report
    }

    #[test]
    fn masters_that_joined_are_added_and_none_is_forgotten() {
        let bench = worker(&[("h1", 1), ("old", 9)]);
        assert_eq!(learned(&bench).notes, ["haproxy learned the masters h2, h3"]);
        let all = masters(&[("h1", 1), ("old", 9), ("h2", 2), ("h3", 3)]);
        assert_eq!(bench.read(CONFIG), config::haproxy(&all));
        assert_eq!(bench.calls(), ["reload haproxy.service"]);
        assert_eq!(learned(&bench).notes, Vec::<String>::new());
        assert!(bench.calls().is_empty(), "nothing is new");
    }

    #[test]
    fn masters_that_stand_in_for_the_service_are_added() {
        let bench = worker(&[("h1", 1)]);
        std::fs::remove_file(bench.host.root.at(CONFIG)).unwrap();
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let service = Ipv4Addr::new(10, 64, 0, 15);
        let mut way = ApiWay { name: "api".to_owned(), service, port: 6443, masters: vec![address(1)] };
        bench.write(API_WAY_FILE, &updater::way(&way));
        assert_eq!(learned(&bench).notes, ["this worker learned the masters 10.0.0.2, 10.0.0.3"]);
        way.masters = [1, 2, 3].map(address).into();
        assert_eq!(bench.read(API_WAY_FILE), updater::way(&way));
        assert_eq!(learned(&bench).notes, Vec::<String>::new());
        assert!(bench.calls().is_empty(), "the unit reads its file by itself");
    }

    #[test]
    fn masters_that_haproxy_did_not_read_are_added_again() {
        let bench = worker(&[("h1", 1)]);
        bench.services.refusing.lock().insert(UNIT.to_owned());
        assert_eq!(learned(&bench).failures.len(), 1);
        assert_eq!(bench.read(CONFIG), config::haproxy(&masters(&[("h1", 1)])));
        bench.services.refusing.lock().clear();
        assert_eq!(learned(&bench).notes, ["haproxy learned the masters h2, h3"]);
    }

    #[test]
    fn a_haproxy_in_a_static_pod_reads_the_new_masters_too() {
        let bench = worker(&[("h1", 1)]);
        bench.write(&format!("{}/{POD}", paths::POD_UNITS), "{}");
        assert_eq!(learned(&bench).notes, ["haproxy learned the masters h2, h3"]);
        assert_eq!(bench.calls(), ["reload haproxy.pod"]);
    }

    #[test]
    fn nothing_changes_without_an_answer_or_without_haproxy() {
        let bench = worker(&[("h1", 1)]);
        bench.write(
            "/etc/kubernetes/kube-proxy.conf",
            r#"{"clusters":[{"cluster":{"server":"https://127.0.0.1:1"}}]}"#,
        );
        let report = learned(&bench);
        assert!(report.notes.is_empty() && report.failures.is_empty(), "{report:?}");
        let joining = Bench::new();
        joining.write(CONFIG, &config::haproxy(&masters(&[("h1", 1)])));
        let report = learned(&joining);
        assert!(report.notes.is_empty() && report.failures.is_empty(), "{report:?}");
        let master = Bench::new();
        let report = learned(&master);
        assert!(report.notes.is_empty() && report.failures.is_empty(), "{report:?}");
        assert!(bench.calls().is_empty() && master.calls().is_empty());
    }
}
