//! Requests certificates on a worker, with the identity of its host. A request is an object of the cluster: one run
//! creates it, a master signs it, a later run installs the certificate.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeon_pki::{belong_together, new_key, request_renewal};
use kubeon_wire::{
    CLIENT_SIGNER, CertificateFact, Claim, HOST_CERTIFICATE, HOST_KEY, SERVING_SIGNER, StepFailure,
};
use serde_json::{Value, json};

use super::answers::REQUESTS;
use super::kubelet::{self, Expired};
use super::report::RenewalReport;
use super::{leaves, lock};
use crate::api::{Api, message, server};
use crate::certificate::is_renewal_of;
use crate::durable::{read_text, remove_file, write_file};
use crate::facts::certificates;
use crate::failure::failed;
use crate::https::Https;
use crate::journal;
use crate::paths;
use crate::root::Root;

const TIMEOUT: Duration = Duration::from_secs(5);
/// The kubelet's serving certificate.
const SERVING: &str = "/etc/kubernetes/pki/kubelet-serving.crt";
/// The key of the request for the kubelet's client certificate, until the certificate is installed.
const REQUEST_KEY: &str = "/var/lib/kubelet/pki/kubeon-request.key";
/// The shortest life that the API server accepts in a request, in seconds.
const SHORTEST_LIFE: i64 = 600;

/// A certificate that is due on this worker.
struct Due {
    signer: &'static str,
    certificate: String,
    key: String,
    place: PathBuf,
    not_after: i64,
    life: i64,
    /// The kubelet's client certificate; otherwise [`SERVING`].
    client: Option<Expired>,
}

/// Requests or installs each due certificate. It does nothing on a host without an identity.
pub(super) fn send(root: &Root, claim: &Claim, now: i64, report: &mut RenewalReport) {
    if !root.at(HOST_CERTIFICATE).exists() {
        return;
    }
    let due = [client(root, now), serving(root, now)];
    for due in due.into_iter().filter_map(Result::transpose) {
        match due.and_then(|due| renew(root, claim, &due)) {
            Ok(note) => report.notes.push(note),
            Err(failure) => report.failures.push(failure),
        }
    }
}

fn client(root: &Root, now: i64) -> Result<Option<Due>, StepFailure> {
    let Some(old) = kubelet::expired(root, now)? else { return Ok(None) };
    Ok(Some(Due {
        signer: CLIENT_SIGNER,
        certificate: old.text.clone(),
        key: request_key(root)?,
        place: old.place.clone(),
        not_after: old.not_after,
        life: old.life,
        client: Some(old),
    }))
}

/// The key of the request for the kubelet's client certificate: a new one, because key and certificate are in one file
/// and are replaced together.
fn request_key(root: &Root) -> Result<String, StepFailure> {
    let place = root.at(REQUEST_KEY);
    if let Some(key) = read_text(&place)? {
        return Ok(key);
    }
    let key = new_key().map_err(|error| failed(error.to_string()))?;
    write_file(&place, key.as_bytes(), 0o600)?;
    Ok(key)
}

fn serving(root: &Root, now: i64) -> Result<Option<Due>, StepFailure> {
    let found = certificates::all(root)?.into_iter().find(|found| found.path == SERVING);
    let Some(found) = found.filter(|found| leaves::is_due(found, now)) else { return Ok(None) };
    let CertificateFact { not_before, not_after, .. } = found;
    let place = root.at(SERVING);
    let (certificate, key) = (read_text(&place)?, read_text(&place.with_extension("key"))?);
    let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
    let life = not_after - not_before;
    Ok(Some(Due { signer: SERVING_SIGNER, certificate, key, place, not_after, life, client: None }))
}

/// Creates the request, or installs its certificate. Returns a note.
fn renew(root: &Root, claim: &Claim, due: &Due) -> Result<String, StepFailure> {
    let https = Https::open(&root.at(paths::API_CA), Some((&root.at(HOST_CERTIFICATE), &root.at(HOST_KEY))))?;
    let api = Api::at(https, server(root)?);
    let subject = certificates::common_name(&due.certificate).unwrap_or_default();
    let node = subject.trim_start_matches("system:node:");
    let kind = due.signer.trim_start_matches("kubeon.io/");
    // One request for each certificate that ends: a repeated run finds its own request.
    let name = format!("{kind}-{node}-{}", due.not_after);
    let place = due.place.display();
    let answer = match api.get(&format!("{REQUESTS}/{name}"), TIMEOUT) {
        Ok(answer) => answer,
        Err(why) => return Ok(format!("cannot request {place} now: {why}")),
    };
    match answer.status {
        200 => {
            let item: Value =
                serde_json::from_str(&answer.body).map_err(|error| failed(error.to_string()))?;
            install(root, claim, due, &item)
        }
        404 => create(&api, due, &name),
        _ => Err(failed(format!("cannot request {place}: {}", message(&answer.body)))),
    }
}

fn create(api: &Api, due: &Due, name: &str) -> Result<String, StepFailure> {
    let request = request_renewal(&due.certificate, &due.key, &due.place);
    let request = request.map_err(|error| failed(error.to_string()))?;
    let usage = if due.client.is_some() { "client auth" } else { "server auth" };
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": { "name": name },
        "spec": {
            "request": STANDARD.encode(request),
            "signerName": due.signer,
            "expirationSeconds": due.life.max(SHORTEST_LIFE),
            "usages": ["digital signature", usage],
        },
    });
    match api.post(REQUESTS, &body, TIMEOUT) {
        Ok(answer) if matches!(answer.status, 201 | 409) => Ok(format!("requested {name} from a master")),
        Ok(answer) => Err(failed(format!("cannot request {name}: {}", message(&answer.body)))),
        Err(why) => Ok(format!("cannot request {name} now: {why}")),
    }
}

fn install(root: &Root, claim: &Claim, due: &Due, item: &Value) -> Result<String, StepFailure> {
    let place = due.place.display();
    let denied = item["status"]["conditions"].as_array().into_iter().flatten();
    if let Some(denied) = denied.clone().find(|condition| condition["type"] == "Denied") {
        let reason = denied["message"].as_str().unwrap_or("no reason is given");
        return Err(failed(format!("a master does not renew {place}: {reason}")));
    }
    let text = item["status"]["certificate"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let Some(new) = text.and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return Ok(format!("waits until a master signs {place}"));
    };
    let is_requested = is_renewal_of(due.certificate.as_bytes(), new.as_bytes());
    if !is_requested || !belong_together(&new, &due.key) {
        return Err(failed(format!("the certificate for {place} is not the requested one")));
    }
    let _lock = match lock::take(root, claim)? {
        Ok(lock) => lock,
        Err(busy) => return Ok(busy.notes.join("; ")),
    };
    match &due.client {
        Some(old) => {
            old.replace(&new, &due.key)?;
            remove_file(&root.at(REQUEST_KEY))?;
        }
        None => {
            let mut entries: Vec<_> = journal::all(root)?.into_iter().flatten().collect();
            leaves::convert_records(root, &entries)?;
            leaves::replace(root, &mut entries, SERVING, &new)?;
        }
    }
    Ok(format!("renewed {place}"))
}
