use std::path::Path;

use kubeon_api::{ClusterKeys, RotationPhase};
use kubeon_ports::Secrets;
use kubeon_wire::{CertificateAuthority, SecretRef, Usage};

use super::tests::{certificate, leaf, openssl, renewer, write};
use super::*;

/// The keys in every state from the first keys to the end of a rotation. The new keys exist in all of them.
fn states(folder: &Path) -> Vec<(ClusterKeys, ClusterPki)> {
    ClusterPki::load_or_create(folder, 10).unwrap();
    ClusterPki::make_next(folder, ClusterKeys::default(), 10).unwrap();
    let states = std::iter::successors(Some(ClusterKeys::default()), |keys| Some(keys.advanced()));
    states.take(6).map(|keys| (keys, ClusterPki::load(folder, keys, true).unwrap())).collect()
}

fn text(pki: &ClusterPki, secret: SecretRef) -> String {
    pki.resolve(&secret).unwrap()
}

/// Whether a program that trusts `authorities` accepts the certificates that a server sends.
fn accepts(folder: &Path, authorities: &str, sent: &str, purpose: &str) -> bool {
    let (trusted, sent) = (write(folder, "trusted", authorities), write(folder, "sent", sent));
    openssl(&["verify", "-purpose", purpose, "-CAfile", &trusted, "-untrusted", &sent, &sent]).0
}

#[test]
fn hosts_in_neighbouring_phases_accept_each_other() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let states = states(folder.path());
    for ca in CertificateAuthority::ALL {
        for pair in states.windows(2) {
            for (user, judge) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                for (usage, purpose) in [(Usage::Client, "sslclient"), (Usage::Server, "sslserver")] {
                    let sent = certificate(&user.1, &leaf(ca, usage));
                    let trusted = text(&judge.1, SecretRef::CaCertificate { ca });
                    assert!(
                        accepts(out.path(), &trusted, &sent, purpose),
                        "{ca}: {:?} at {:?}",
                        user.0,
                        judge.0
                    );
                }
            }
        }
    }
}

#[test]
fn a_program_that_knows_only_the_old_authority_accepts_the_new_servers_and_not_the_new_clients() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let states = states(folder.path());
    let ca = CertificateAuthority::Kubernetes;
    let (old, new) = (text(&states[0].1, SecretRef::CaCertificate { ca }), &states[5].1);
    assert!(accepts(out.path(), &old, &certificate(new, &leaf(ca, Usage::Server)), "sslserver"));
    assert!(!accepts(out.path(), &old, &certificate(new, &leaf(ca, Usage::Client)), "sslclient"));
}

#[test]
fn the_end_of_a_rotation_excludes_the_old_keys_and_removes_their_files() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let states = states(folder.path());
    let (ended, new) = &states[5];
    for ca in CertificateAuthority::ALL {
        let old = certificate(&states[0].1, &leaf(ca, Usage::Client));
        let trusted = text(new, SecretRef::CaCertificate { ca });
        assert!(!accepts(out.path(), &trusted, &old, "sslclient"), "{ca}");
    }
    let key = |pki| text(pki, SecretRef::ServiceAccountKey);
    assert_ne!(key(new), key(&states[0].1));
    ClusterPki::remove_old(folder.path(), *ended).unwrap();
    ClusterPki::remove_old(folder.path(), *ended).unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let mut files: Vec<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    files.sort();
    let authority = |ca: CertificateAuthority| format!("ca-{ca}-2.pem");
    let mut wanted: Vec<String> = CertificateAuthority::ALL.into_iter().map(authority).collect();
    wanted.extend(["encryption.keys".to_owned(), "sa-2.pem".to_owned()]);
    wanted.sort();
    assert_eq!(files, wanted);
    assert!(ClusterPki::check(folder.path(), *ended, true).is_ok());
    assert!(ClusterPki::check(folder.path(), ClusterKeys::default(), true).is_err());
    ClusterPki::make_next(folder.path(), *ended, 10).unwrap();
    ClusterPki::check(folder.path(), ended.advanced(), true).unwrap();
}

#[test]
fn what_signs_comes_first_and_alone_for_the_controller_manager() {
    let folder = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::Kubernetes;
    for (keys, pki) in states(folder.path()) {
        let trusted = text(&pki, SecretRef::CaCertificate { ca });
        let signing = text(&pki, SecretRef::SigningCertificate { ca });
        let both = keys.also_trusted().is_some();
        assert!(trusted.starts_with(&signing), "{keys:?}");
        assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 1 + usize::from(both), "{keys:?}");
        assert_eq!(signing.matches("BEGIN CERTIFICATE").count(), 1);
        assert!(Renewer::new(&trusted, &text(&pki, SecretRef::CaKey { ca }), Path::new("ca.crt")).is_ok());
        let public = text(&pki, SecretRef::ServiceAccountPublicKey);
        assert_eq!(public.matches("BEGIN PUBLIC KEY").count(), 1 + usize::from(both), "{keys:?}");
        let config = text(&pki, SecretRef::EncryptionConfiguration { encrypts: true });
        assert_eq!(config.matches("\"secret\"").count(), 1 + usize::from(both), "{keys:?}");
        let name = format!("\"name\": \"key{}\"", keys.signing());
        assert_eq!(config.find("\"name\": \"key"), config.find(&name), "{keys:?}: {config}");
    }
}

#[test]
fn a_renewed_certificate_keeps_the_certificate_of_the_old_authority() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let states = states(folder.path());
    let ca = CertificateAuthority::Kubernetes;
    let (phase, pki) = &states[2];
    assert_eq!(phase.rotation(), Some(RotationPhase::Reissue));
    let server = leaf(ca, Usage::Server);
    let (old, key) = (certificate(pki, &server), text(pki, SecretRef::LeafKey(server)));
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let new = renewer(pki, ca).renew(&old, &key, Path::new("apiserver.crt"), now).unwrap();
    assert_eq!(new.matches("BEGIN CERTIFICATE").count(), 2);
    let first = text(&states[0].1, SecretRef::CaCertificate { ca });
    assert!(accepts(out.path(), &first, &new, "sslserver"));
}

#[test]
fn the_new_keys_are_made_once() {
    let folder = tempfile::tempdir().unwrap();
    ClusterPki::load_or_create(folder.path(), 10).unwrap();
    let trusted = || {
        ClusterPki::make_next(folder.path(), ClusterKeys::default(), 10).unwrap();
        let pki = ClusterPki::load(folder.path(), ClusterKeys::default().advanced(), true).unwrap();
        text(&pki, SecretRef::CaCertificate { ca: CertificateAuthority::Etcd })
            + &text(&pki, SecretRef::EncryptionConfiguration { encrypts: true })
    };
    assert_eq!(trusted(), trusted(), "a killed command continues with the same keys");
}
