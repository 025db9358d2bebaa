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
    let all = try_join_all(masters.iter().map(|host| async move {
        let files = read(contact, *host).await.map_err(|why| refusal(name, [(*host, why)]))?;
        is_signed(text(&files, API_SERVER), text(&files, "pki/ca.crt"))
            .map_err(|why| refusal(name, [(*host, format!("{FOLDER}/{API_SERVER}: {why}"))]))?;
        Ok::<_, EngineError>((*host, files))
    }))
    .await?;
    let Some(((_, first), others)) = all.split_first() else {
        return Err(refusal(name, [("masters", "none is named".to_owned())]));
    };
    for (host, other) in others {
        if let Some(file) = first_difference(first, other) {
            let text = format!("{FOLDER}/{file} differs from that of {}", masters[0]);
            return Err(refusal(name, [(*host, text)]));
        }
    }
    master_keys(first).files(number).map_err(|error| refusal(name, [(error.what, error.reason)]))
}

async fn read(contact: &Contact, host: HostAddress) -> Result<KeyFiles, String> {
    let output = command_output(&contact.hosts, host, &command(), TIMEOUT).await;
    let output = output.map_err(|why| format!("cannot read the keys in {FOLDER}: {why}"))?;
    parse(&output).ok_or_else(|| format!("cannot read the keys in {FOLDER}: the output is incomplete"))
}

/// The names of all files.
fn names() -> impl Iterator<Item = String> {
    let authorities =
        AUTHORITIES.into_iter().flat_map(|(_, path)| [format!("{path}.crt"), format!("{path}.key")]);
    let others = [SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC_KEY, ENCRYPTION, API_SERVER];
    authorities.chain(others.map(str::to_owned))
}

/// Prints the size and the name of each file on a line, then the file.
fn command() -> String {
    let names = names().collect::<Vec<_>>().join(" ");
    format!(
        "set -e; cd {FOLDER}; for file in {names}; do size=$(wc -c <\"$file\"); echo \"$size $file\"; cat \"$file\"; done"
    )
}

/// The files in the output of [`command`]; `None` if it is incomplete.
fn parse(mut output: &str) -> Option<KeyFiles> {
    let mut files = KeyFiles::new();
    while !output.is_empty() {
        let (head, rest) = output.split_once('\n')?;
        let (size, name) = head.trim_start().split_once(' ')?;
        let size = size.parse::<usize>().ok()?;
        files.insert(name.to_owned(), rest.get(..size)?.to_owned());
        output = rest.get(size..)?;
    }
    names().all(|name| files.contains_key(&name)).then_some(files)
}

/// The text of a file that [`parse`] found.
fn text<'f>(files: &'f KeyFiles, name: &str) -> &'f str {
    files.get(name).map_or("", String::as_str)
}

/// The first file in which two masters differ, without what each has for itself.
fn first_difference(first: &KeyFiles, other: &KeyFiles) -> Option<String> {
    names().filter(|name| name != API_SERVER).find(|name| first.get(name) != other.get(name))
}

fn master_keys(files: &KeyFiles) -> MasterKeys {
    let own = |name: &str| text(files, name).to_owned();
    let authority = |(ca, path): (CertificateAuthority, &str)| {
        (ca, MasterAuthority { certificate: own(&format!("{path}.crt")), key: own(&format!("{path}.key")) })
    };
    MasterKeys {
        authorities: AUTHORITIES.map(authority).into(),
        service_account_key: own(SERVICE_ACCOUNT_KEY),
        service_account_public_key: own(SERVICE_ACCOUNT_PUBLIC_KEY),
        encryption_configuration: own(ENCRYPTION),
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
        names()
            .map(|name| (text(&name), name))
            .map(|(text, name)| format!("{} {name}\n{text}", text.len()))
            .collect()
    }

    #[test]
    fn the_files_are_found_in_the_output() {
        let output = printed(|name| format!("-----\n{name} "));
        let files = parse(&output).unwrap();
        assert_eq!(text(&files, "pki/sa.key"), "-----\npki/sa.key ");
        assert_eq!(files.len(), names().count());
        for length in [0, 1, output.len() / 2, output.len() - 1] {
            assert_eq!(parse(&output[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn masters_may_differ_only_in_what_is_their_own() {
        let of = |other: &'static str| {
            parse(&printed(|name| if name == other { "other".to_owned() } else { "same".to_owned() }))
                .unwrap()
        };
        assert_eq!(first_difference(&of(""), &of(API_SERVER)), None);
        assert_eq!(first_difference(&of(""), &of("pki/sa.key")), Some("pki/sa.key".to_owned()));
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let line = command().replace(FOLDER, &folder.path().display().to_string());
        let done = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        let message = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && message.contains("pki/ca.crt"), "{message}");
        for name in names() {
            let path = folder.path().join(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{name}\nend")).unwrap();
        }
        let done = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        let files = parse(&String::from_utf8(done.stdout).unwrap()).unwrap();
        assert_eq!(text(&files, "pki/ca.crt"), "pki/ca.crt\nend");
    }
}
