//! Every master copies the endpoints that the API servers keep for themselves. All of them write the same, so none has to lead,
//! and the loss of one delays nothing. An old list that a suspended process writes late lasts until the next watch of any of them.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use kubeon_wire::{API_SERVICE, ApiObject};
use serde_json::{Value, json};

use crate::api::{Api, message};
use crate::backoff::pauses;
use crate::host::HostSystem;

/// Every API server keeps its own address there, and removes those that no longer renew their Lease.
const SERVING: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const ONLY_KUBERNETES: &str = "&fieldSelector=metadata.name%3Dkubernetes";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
/// A watch ends after this time, and the next one shows and writes everything again, with certificates that are read again.
const WATCH_TIME: Duration = Duration::from_secs(60);
/// The pause before the next watch.
const PAUSE: Duration = Duration::from_secs(1);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps the endpoints of the Service equal to the API servers that serve. It never ends; `report` gets what goes wrong, once
/// until it changes.
pub fn publish(host: &HostSystem, report: &mut dyn FnMut(&str)) -> ! {
    let (mut pauses, mut reported) = (self::pauses(), String::new());
    loop {
        match follow(host) {
            Ok(()) => {
                pauses = self::pauses();
                reported.clear();
                thread::sleep(PAUSE);
            }
            Err(why) => {
                if why != reported {
                    report(&why);
                    reported = why;
                }
                thread::sleep(pauses.next().unwrap_or_default());
            }
        }
    }
}

/// Writes the endpoints at every change until the watch ends.
fn follow(host: &HostSystem) -> Result<(), String> {
    let api = Api::as_api_updater(host).map_err(|failure| failure.to_string())?;
    let mut written = Ok(());
    api.watch(SERVING, ONLY_KUBERNETES, WATCH_TIME, &mut |event| {
        if matches!(event.kind.as_str(), "ADDED" | "MODIFIED") {
            written = write(&api, &event.object);
        }
        written.is_err()
    })?;
    written
}

fn write(api: &Api, kubernetes: &Value) -> Result<(), String> {
    let Some(object) = endpoints(kubernetes) else { return Ok(()) };
    let answer = api.apply(&object, WRITE_TIMEOUT)?;
    if matches!(answer.status, 200 | 201) {
        return Ok(());
    }
    Err(format!("{}: the API server answers {}: {}", object.path, answer.status, message(&answer.body)))
}

/// The endpoints of the Service; `None` if no API server is known to serve, because then the known ones are the best guess.
fn endpoints(kubernetes: &Value) -> Option<ApiObject> {
    let of = |endpoint: &Value| {
        let ready = endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
        let addresses = endpoint["addresses"].as_array().filter(|_| ready)?;
        Some(addresses.iter().filter_map(|address| address.as_str().map(str::to_owned)).collect::<Vec<_>>())
    };
    let found = kubernetes["endpoints"].as_array()?.iter().filter_map(of).flatten();
    let addresses: BTreeSet<String> = found.collect();
    if addresses.is_empty() {
        return None;
    }
    let endpoint = |address| json!({ "addresses": [address], "conditions": { "ready": true } });
    let endpoints: Vec<Value> = addresses.into_iter().map(endpoint).collect();
    let body = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": API_SERVICE,
            "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": API_SERVICE,
                "endpointslice.kubernetes.io/managed-by": "apiserver-updater.kubeon.io",
            },
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": kubernetes["ports"],
    });
    Some(ApiObject { path: format!("{SLICES}/{API_SERVICE}"), body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    fn kubernetes(addresses: &[&str]) -> Value {
        let endpoint = |address: &&str| json!({ "addresses": [address], "conditions": { "ready": true } });
        let endpoints: Vec<_> = addresses.iter().map(endpoint).collect();
        json!({ "endpoints": endpoints, "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }] })
    }

    fn event(addresses: &[&str]) -> String {
        json!({ "type": "MODIFIED", "object": kubernetes(addresses) }).to_string()
    }

    #[test]
    fn every_change_is_copied() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |method, _, _| match method {
            "GET" => Reply::Lines(vec![event(&["10.0.0.2", "10.0.0.1"]), event(&[]), event(&["10.0.0.1"])]),
            _ => Reply::Json(200, "{}".to_owned()),
        });
        follow(&bench.host).unwrap();
        let sent = requests.lock();
        let written: Vec<Value> = sent
            .iter()
            .filter(|(method, _, _)| method == "PATCH")
            .map(|(_, _, body)| serde_json::from_str(body).unwrap())
            .collect();
        assert_eq!(written.len(), 2, "an empty list is not copied");
        let addresses = |body: &Value| -> Vec<String> {
            let endpoints = body["endpoints"].as_array().unwrap();
            endpoints.iter().map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(addresses(&written[0]), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(addresses(&written[1]), ["10.0.0.1"]);
        assert_eq!(written[1]["ports"][0]["port"], 6443);
        assert_eq!(written[1]["metadata"]["labels"]["kubernetes.io/service-name"], "apiserver");
    }

    /// What another master wrote in between does not matter.
    #[test]
    fn every_watch_writes_the_list_again() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |method, _, _| match method {
            "GET" => Reply::Lines(vec![event(&["10.0.0.1"])]),
            _ => Reply::Json(200, "{}".to_owned()),
        });
        follow(&bench.host).unwrap();
        follow(&bench.host).unwrap();
        let sent = requests.lock();
        assert_eq!(sent.iter().filter(|(method, _, _)| method == "PATCH").count(), 2);
    }

    #[test]
    fn the_identity_is_its_own_as_soon_as_there_is_one() {
        let mut bench = Bench::new();
        serve(&mut bench, |_, _, _| Reply::Lines(Vec::new()));
        follow(&bench.host).unwrap();
        bench.write(paths::API_UPDATER_CERTIFICATE, "no certificate");
        assert!(follow(&bench.host).is_err(), "the one of kubeon is not used any more");
        let [certificate, key] = [paths::ADMIN_CERTIFICATE, paths::ADMIN_KEY].map(|path| bench.read(path));
        bench.write(paths::API_UPDATER_CERTIFICATE, &certificate);
        bench.write(paths::API_UPDATER_KEY, &key);
        std::fs::remove_file(bench.host.root.at(paths::ADMIN_KEY)).unwrap();
        follow(&bench.host).unwrap();
    }

    #[test]
    fn a_refused_write_ends_the_watch_with_its_reason() {
        let mut bench = Bench::new();
        serve(&mut bench, |method, _, _| match method {
            "GET" => Reply::Hang(vec![event(&["10.0.0.1"])]),
            _ => Reply::Json(403, r#"{"message": "not you"}"#.to_owned()),
        });
        let why = follow(&bench.host).unwrap_err();
        assert!(why.ends_with("endpointslices/apiserver: the API server answers 403: not you"), "{why}");
    }

    #[test]
    fn an_api_server_that_is_not_ready_is_left_out() {
        let mut object = kubernetes(&["10.0.0.1", "10.0.0.2"]);
        object["endpoints"][0]["conditions"]["ready"] = json!(false);
        let endpoints = endpoints(&object).unwrap().body["endpoints"].clone();
        assert_eq!(endpoints, json!([{ "addresses": ["10.0.0.2"], "conditions": { "ready": true } }]));
    }
}
