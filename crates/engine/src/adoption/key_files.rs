//! The key files of masters. They are read as root over the session and stay in memory until they are stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use kubeon_api::{ClusterName, HostAddress, KeyNumber};
use kubeon_pki::{MasterAuthority, MasterKeys};
use kubeon_wire::CertificateAuthority;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::checks::refusal;
use super::printed_files;
use crate::cluster_nodes::command_output;
use crate::contact::Contact;
use crate::error::{EngineError, chain};

/// Time limit for reading the files of a master.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The folder of the files.
const FOLDER: &str = "/etc/kubernetes";
/// The files of an authority, without their ends.
const AUTHORITIES: [(CertificateAuthority, &str); 4] = [
    (CertificateAuthority::Kubernetes, "pki/ca"),
    (CertificateAuthority::Etcd, "pki/etcd/ca"),
    (CertificateAuthority::FrontProxy, "pki/front-proxy-ca"),
    (CertificateAuthority::KubeletServing, "pki/kubelet-serving-ca"),
];
const SERVICE_ACCOUNT_KEY: &str = "pki/sa.key";
const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "pki/sa.pub";
const ENCRYPTION: &str = "encryption.yaml";
/// The certificate of the API server, which every master has for itself.
const API_SERVER: &str = "pki/apiserver.crt";
/// A name in the certificate of every API server.
const API_NAME: &str = "kubernetes";

/// The texts of the files of a master by name.
type KeyFiles = BTreeMap<String, String>;

/// Which program made the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyFileOrigin {
    Kubeon,
    /// It has no authority of the kubelets, and stores Secrets as they are.
    Kubeadm,
}

/// The files for the folder of the keys, read from the masters: name and content.
///
/// # Errors
/// Refuses when a file cannot be read, the masters have different keys, or keys and certificates do not belong together.
pub(super) async fn of_masters(
    contact: &Contact,
    name: &ClusterName,
    masters: &[HostAddress],
    number: KeyNumber,
) -> Result<KeyFiles, EngineError> {
    let origin = KeyFileOrigin::Kubeon;
    let files = common_files(contact, name, masters, origin).await?;
    master_keys(&files, origin).files(number).map_err(|error| refusal(name, [(error.what, error.reason)]))
}

/// The same for masters that kubeadm made, whose keys are taken as they are. What they do not have is made, with a lifetime of
/// `ca_years`.
///
/// # Errors
/// As for [`of_masters`].
pub(super) async fn of_kubeadm(
    contact: &Contact,
    name: &ClusterName,
    masters: &[HostAddress],
    ca_years: u32,
) -> Result<KeyFiles, EngineError> {
    let origin = KeyFileOrigin::Kubeadm;
    let files = common_files(contact, name, masters, origin).await?;
    let mut keys = master_keys(&files, origin);
    let made = keys.add_missing(ca_years).and_then(|()| keys.files(KeyNumber::FIRST));
    made.map_err(|error| refusal(name, [(error.what, error.reason)]))
}

/// The files that all masters have.
async fn common_files(
    contact: &Contact,
    name: &ClusterName,
    masters: &[HostAddress],
    origin: KeyFileOrigin,
) -> Result<KeyFiles, EngineError> {
    let all = try_join_all(masters.iter().map(|host| async move {
        let files = read(contact, *host, origin).await.map_err(|why| refusal(name, [(*host, why)]))?;
        is_signed(text(&files, API_SERVER), text(&files, "pki/ca.crt"))
            .map_err(|why| refusal(name, [(*host, format!("{FOLDER}/{API_SERVER}: {why}"))]))?;
        Ok::<_, EngineError>((*host, files))
    }))
    .await?;
    let mut all = all.into_iter();
    let Some((_, first)) = all.next() else {
        return Err(refusal(name, [("masters", "none is named".to_owned())]));
    };
    for (host, other) in all {
        if let Some(file) = first_difference(&first, &other, origin) {
            let text = format!("{FOLDER}/{file} differs from that of {}", masters[0]);
            return Err(refusal(name, [(host, text)]));
        }
    }
    Ok(first)
}

async fn read(contact: &Contact, host: HostAddress, origin: KeyFileOrigin) -> Result<KeyFiles, String> {
    let output = command_output(&contact.hosts, host, &command(origin), TIMEOUT).await;
    let output = output.map_err(|why| format!("cannot read the keys in {FOLDER}: {why}"))?;
    parse(&output, origin)
        .ok_or_else(|| format!("cannot read the keys in {FOLDER}: the output is incomplete"))
}

/// The authorities of the program, with their files.
fn authorities(origin: KeyFileOrigin) -> impl Iterator<Item = (CertificateAuthority, &'static str)> {
    let has = move |ca: CertificateAuthority| {
        origin == KeyFileOrigin::Kubeon || ca != CertificateAuthority::KubeletServing
    };
    AUTHORITIES.into_iter().filter(move |(ca, _)| has(*ca))
}

/// The names of all files.
fn names(origin: KeyFileOrigin) -> impl Iterator<Item = String> {
    let authorities =
        authorities(origin).flat_map(|(_, path)| [format!("{path}.crt"), format!("{path}.key")]);
    let others = [SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC_KEY, API_SERVER];
    let encryption = (origin == KeyFileOrigin::Kubeon).then_some(ENCRYPTION);
    authorities.chain(others.into_iter().chain(encryption).map(str::to_owned))
}

/// Prints the size and the name of each file on a line, then the file.
fn command(origin: KeyFileOrigin) -> String {
    let names = names(origin).collect::<Vec<_>>().join(" ");
    format!(
        "set -e; cd {FOLDER}; for file in {names}; do size=$(wc -c <\"$file\"); echo \"$size $file\"; cat \"$file\"; done"
    )
}

/// The files in the output of [`command`]; `None` if it is incomplete.
fn parse(output: &str, origin: KeyFileOrigin) -> Option<KeyFiles> {
    let files = printed_files::split(output)?;
    names(origin).all(|name| files.contains_key(&name)).then_some(files)
}

/// The text of a file that [`parse`] found.
fn text<'f>(files: &'f KeyFiles, name: &str) -> &'f str {
    files.get(name).map_or("", String::as_str)
}

/// The first file in which two masters differ, without what each has for itself.
fn first_difference(first: &KeyFiles, other: &KeyFiles, origin: KeyFileOrigin) -> Option<String> {
    names(origin).filter(|name| name != API_SERVER).find(|name| first.get(name) != other.get(name))
}

fn master_keys(files: &KeyFiles, origin: KeyFileOrigin) -> MasterKeys {
    let own = |name: &str| text(files, name).to_owned();
    let authority = |(ca, path): (CertificateAuthority, &str)| {
        (ca, MasterAuthority { certificate: own(&format!("{path}.crt")), key: own(&format!("{path}.key")) })
    };
    MasterKeys {
        authorities: authorities(origin).map(authority).collect(),
        service_account_key: own(SERVICE_ACCOUNT_KEY),
        service_account_public_key: own(SERVICE_ACCOUNT_PUBLIC_KEY),
        encryption_configuration: (origin == KeyFileOrigin::Kubeon).then(|| own(ENCRYPTION)),
    }
}

/// Whether the authority signed the certificate of an API server, and the certificate is valid now.
fn is_signed(certificate: &str, authority: &str) -> Result<(), String> {
    let first = |text: &str, what: &str| {
        CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| format!("{what} is no certificate"))
    };
    let mut roots = rustls::RootCertStore::empty();
    let root = first(authority, "the authority")?;
    roots.add(root).map_err(|error| format!("the authority cannot be used: {}", chain(&error)))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| chain(&error))?;
    let name = ServerName::try_from(API_NAME).map_err(|error| chain(&error))?;
    verifier
        .verify_server_cert(&first(certificate, "it")?, &[], &name, &[], UnixTime::now())
        .map(drop)
        .map_err(|error| format!("the authority of the cluster did not sign it: {}", chain(&error)))
}

#[cfg(test)]
mod tests {
    use kubeon_pki::ClusterPki;
    use kubeon_ports::Secrets as _;
    use kubeon_wire::{Leaf, SecretRef, Usage};

    use super::KeyFileOrigin::Kubeon;
    use super::*;

    fn new_keys() -> (tempfile::TempDir, ClusterPki) {
        let folder = tempfile::tempdir().unwrap();
        let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
        (folder, pki)
    }

    fn authority(pki: &ClusterPki) -> String {
        pki.resolve(&SecretRef::CaCertificate { ca: CertificateAuthority::Kubernetes }).unwrap()
    }

    fn certificate(pki: &ClusterPki) -> String {
        let leaf = Leaf {
            ca: CertificateAuthority::Kubernetes,
            common_name: "kube-apiserver".to_owned(),
            organizations: Vec::new(),
            dns_names: vec![API_NAME.to_owned()],
            addresses: Vec::new(),
            usage: Usage::Server,
            hours: 1,
        };
        pki.resolve(&SecretRef::LeafCertificate(leaf)).unwrap()
    }

    #[test]
    fn only_the_authority_itself_signed_the_certificate() {
        let ((_here, own), (_there, other)) = (new_keys(), new_keys());
        is_signed(&certificate(&own), &authority(&own)).unwrap();
        let error = is_signed(&certificate(&own), &authority(&other)).unwrap_err();
        assert!(error.contains("did not sign it"), "{error}");
        assert_eq!(is_signed("", &authority(&own)).unwrap_err(), "it is no certificate");
        assert_eq!(is_signed(&certificate(&own), "x").unwrap_err(), "the authority is no certificate");
    }

    /// What a shell prints for files with these texts.
    fn printed(text: impl Fn(&str) -> String) -> String {
        names(Kubeon)
            .map(|name| (text(&name), name))
            .map(|(text, name)| format!("{} {name}\n{text}", text.len()))
            .collect()
    }

    #[test]
    fn the_files_are_found_in_the_output() {
        let output = printed(|name| format!("-----\n{name} "));
        let files = parse(&output, Kubeon).unwrap();
        assert_eq!(text(&files, "pki/sa.key"), "-----\npki/sa.key ");
        assert_eq!(files.len(), names(Kubeon).count());
        for length in [0, 1, output.len() / 2, output.len() - 1] {
            assert_eq!(parse(&output[..length], Kubeon), None, "{length} bytes");
        }
    }

    #[test]
    fn masters_may_differ_only_in_what_is_their_own() {
        let of = |other: &'static str| {
            let text = |name: &str| if name == other { "other".to_owned() } else { "same".to_owned() };
            parse(&printed(text), Kubeon).unwrap()
        };
        assert_eq!(first_difference(&of(""), &of(API_SERVER), Kubeon), None);
        assert_eq!(first_difference(&of(""), &of("pki/sa.key"), Kubeon), Some("pki/sa.key".to_owned()));
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let line = command(Kubeon).replace(FOLDER, &folder.path().display().to_string());
        let done = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        let message = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && message.contains("pki/ca.crt"), "{message}");
        for name in names(Kubeon) {
            let path = folder.path().join(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{name}\nend")).unwrap();
        }
        let done = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        let files = parse(&String::from_utf8(done.stdout).unwrap(), Kubeon).unwrap();
        assert_eq!(text(&files, "pki/ca.crt"), "pki/ca.crt\nend");
    }

    #[test]
    fn kubeadm_has_no_authority_of_the_kubelets_and_encrypts_no_secrets() {
        let of_kubeadm: Vec<String> = names(KeyFileOrigin::Kubeadm).collect();
        let more: Vec<String> = names(Kubeon).filter(|name| !of_kubeadm.contains(name)).collect();
        assert_eq!(more, ["pki/kubelet-serving-ca.crt", "pki/kubelet-serving-ca.key", "encryption.yaml"]);
    }
}
