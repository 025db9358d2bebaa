use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use kubeon_api::{ClusterKeys, KeyNumber};
use kubeon_ports::Secrets;
use kubeon_wire::{CertificateAuthority, Leaf, SecretRef, Usage};
use time::{Duration, OffsetDateTime};
use x509_parser::pem::parse_x509_pem;

use super::leaf::is_due_at;
use super::*;

pub(crate) fn leaf(ca: CertificateAuthority, usage: Usage) -> Leaf {
    Leaf {
        ca,
        common_name: "system:node:h1".into(),
        organizations: vec!["system:nodes".into()],
        dns_names: vec!["h1".into(), "kubernetes.default.svc".into()],
        addresses: vec!["172.30.0.11".parse().unwrap()],
        usage,
        hours: 24,
    }
}

pub(crate) fn certificate(pki: &ClusterPki, leaf: &Leaf) -> String {
    pki.resolve(&SecretRef::LeafCertificate(leaf.clone())).unwrap()
}

pub(crate) fn openssl(args: &[&str]) -> (bool, String) {
    let out = Command::new("openssl").args(args).output().unwrap();
    (
        out.status.success(),
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr),
    )
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn openssl_accepts_a_leaf_of_its_own_authority_only() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let out = tempfile::tempdir().unwrap();
    let cert =
        write(out.path(), "leaf", &certificate(&pki, &leaf(CertificateAuthority::Kubernetes, Usage::Both)));
    for ca in CertificateAuthority::ALL {
        let text = pki.resolve(&SecretRef::CaCertificate { ca }).unwrap();
        let file = write(out.path(), ca.as_str(), &text);
        for purpose in ["sslserver", "sslclient"] {
            let (good, output) =
                openssl(&["verify", "-x509_strict", "-purpose", purpose, "-CAfile", &file, &cert]);
            assert_eq!(good, ca == CertificateAuthority::Kubernetes, "{ca}: {output}");
        }
    }
}

#[test]
fn openssl_accepts_a_leaf_for_its_usage_only() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let out = tempfile::tempdir().unwrap();
    let ca = pki.resolve(&SecretRef::CaCertificate { ca: CertificateAuthority::Etcd }).unwrap();
    let ca = write(out.path(), "ca", &ca);
    let accepted = |usage, purpose: &str| {
        let cert = write(out.path(), "leaf", &certificate(&pki, &leaf(CertificateAuthority::Etcd, usage)));
        openssl(&["verify", "-x509_strict", "-purpose", purpose, "-CAfile", &ca, &cert]).0
    };
    assert!(accepted(Usage::Client, "sslclient") && !accepted(Usage::Client, "sslserver"));
    assert!(accepted(Usage::Server, "sslserver") && !accepted(Usage::Server, "sslclient"));
}

#[test]
fn a_leaf_has_the_requested_fields() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let out = tempfile::tempdir().unwrap();
    let cert =
        write(out.path(), "leaf", &certificate(&pki, &leaf(CertificateAuthority::Kubernetes, Usage::Server)));
    let (_, text) = openssl(&["x509", "-noout", "-text", "-in", &cert]);
    for word in [
        "O = system:nodes",
        "CN = system:node:h1",
        "DNS:h1, DNS:kubernetes.default.svc, IP Address:172.30.0.11",
        "Digital Signature",
        "TLS Web Server Authentication",
        "CA:FALSE",
        "X509v3 Subject Key Identifier",
        "X509v3 Authority Key Identifier",
        "prime256v1",
    ] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
}

#[test]
fn refuses_a_second_organization() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let many = Leaf {
        organizations: vec!["a".into(), "b".into()],
        ..leaf(CertificateAuthority::Etcd, Usage::Client)
    };
    let error = pki.resolve(&SecretRef::LeafCertificate(many)).unwrap_err().to_string();
    assert!(error.contains("several organizations"), "{error}");
}

#[test]
fn a_leaf_is_valid_from_five_minutes_ago_for_its_hours() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let text = certificate(&pki, &leaf(CertificateAuthority::Kubernetes, Usage::Client));
    let (_, pem) = parse_x509_pem(text.as_bytes()).unwrap();
    let validity = pem.parse_x509().unwrap().validity().clone();
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    assert!((validity.not_before.timestamp() - (now - 300)).abs() < 60);
    assert!((validity.not_after.timestamp() - (now + 24 * 3600)).abs() < 60);
}

#[test]
fn an_authority_is_valid_for_its_years_and_no_leaf_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let ends: Vec<i64> = pki.expiries().map(|(_, end)| end).collect();
    assert!(ends.iter().all(|end| (end - now - 365 * 86400).abs() < 60));
    let text = certificate(
        &pki,
        &Leaf { hours: 100 * 8760, ..leaf(CertificateAuthority::Kubernetes, Usage::Client) },
    );
    let (_, pem) = parse_x509_pem(text.as_bytes()).unwrap();
    assert_eq!(pem.parse_x509().unwrap().validity().not_after.timestamp(), ends[0]);

    let century = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(century.path(), 1000).unwrap();
    let over = |(_, end): (&str, i64), years: i64| end > now + years * 365 * 86400;
    assert!(pki.expiries().all(|end| over(end, 99) && !over(end, 101)), "at most 100 years");
}

#[test]
fn equal_leaves_share_a_key_pair_and_other_leaves_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let wanted = leaf(CertificateAuthority::Kubernetes, Usage::Client);
    let text = certificate(&pki, &wanted);
    let key = pki.resolve(&SecretRef::LeafKey(wanted.clone())).unwrap();
    let pair = rcgen::KeyPair::from_pem(&key).unwrap();
    let (_, pem) = parse_x509_pem(text.as_bytes()).unwrap();
    assert_eq!(
        pem.parse_x509().unwrap().public_key().subject_public_key.data.as_ref(),
        pair.public_key_raw()
    );
    assert_eq!(text, certificate(&pki, &wanted));
    assert_ne!(text, certificate(&pki, &Leaf { hours: 25, ..wanted }));
}

#[test]
fn keys_differ_and_are_kept_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let read = || {
        let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
        let mut all: Vec<String> = CertificateAuthority::ALL
            .iter()
            .map(|ca| pki.resolve(&SecretRef::CaKey { ca: *ca }).unwrap())
            .collect();
        all.push(pki.resolve(&SecretRef::ServiceAccountKey).unwrap());
        all
    };
    let first = read();
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 5);
    assert_eq!(first, read());
}

#[test]
fn files_are_private_even_if_they_were_readable_before() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret/demo");
    ClusterPki::load_or_create(&secret, 100).unwrap();
    std::fs::set_permissions(secret.join("sa.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    ClusterPki::load_or_create(&secret, 100).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&secret), 0o700);
    let files: Vec<_> = std::fs::read_dir(&secret).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 6, "{files:?}");
    assert!(files.iter().all(|file| mode(file) == 0o600));
}

#[test]
fn concurrent_creation_gives_the_same_keys() {
    let folder = tempfile::tempdir().unwrap();
    let keys: HashSet<String> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
                    pki.resolve(&SecretRef::CaKey { ca: CertificateAuthority::Etcd }).unwrap()
                        + &pki.resolve(&SecretRef::ServiceAccountKey).unwrap()
                        + &pki.resolve(&SecretRef::EncryptionConfiguration { encrypts: true }).unwrap()
                })
            })
            .collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    assert_eq!(keys.len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 6);
}

#[test]
fn keys_of_an_existing_cluster_are_read_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret/demo");
    let made = ClusterPki::load_or_create(&secret, 100).unwrap();
    let key = SecretRef::CaKey { ca: CertificateAuthority::Etcd };
    assert_eq!(
        ClusterPki::load(&secret, ClusterKeys::default(), true).unwrap().resolve(&key).unwrap(),
        made.resolve(&key).unwrap(),
        "the complete folder gives the same keys"
    );
    for name in [
        "ca-kubernetes.pem",
        "ca-etcd.pem",
        "ca-front-proxy.pem",
        "ca-kubelet-serving.pem",
        "sa.pem",
        "encryption.keys",
    ] {
        let (path, kept) = (secret.join(name), folder.path().join("kept"));
        std::fs::rename(&path, &kept).unwrap();
        let error = ClusterPki::load(&secret, ClusterKeys::default(), true).err().unwrap();
        assert!(matches!(&error, PkiError::Missing { paths } if *paths == [path.clone()]), "{error}");
        let words = error.to_string();
        assert!(words.contains(name) && words.contains("backup") && !path.exists(), "{words}");
        std::fs::rename(&kept, &path).unwrap();
    }
    std::fs::remove_dir_all(&secret).unwrap();
    let error = ClusterPki::load(&secret, ClusterKeys::default(), true).err().unwrap();
    assert!(matches!(&error, PkiError::Missing { paths } if *paths == [secret.clone()]), "{error}");
    assert!(!secret.exists());
}

#[test]
fn check_reports_the_errors_of_load_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret/demo");
    assert!(
        matches!(ClusterPki::check(&secret, ClusterKeys::default(), true), Err(PkiError::Missing { paths }) if paths == [secret.clone()])
    );
    assert!(!secret.exists());
    ClusterPki::load_or_create(&secret, 100).unwrap();
    let etcd = secret.join("ca-etcd.pem");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for path in [&etcd, &secret] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    ClusterPki::check(&secret, ClusterKeys::default(), true).unwrap();
    assert_eq!((mode(&etcd), mode(&secret)), (0o755, 0o755));
    std::fs::write(&etcd, "half").unwrap();
    let error = ClusterPki::check(&secret, ClusterKeys::default(), true).unwrap_err().to_string();
    assert!(error.contains("ca-etcd.pem is damaged"), "{error}");
    std::fs::remove_file(&etcd).unwrap();
    assert!(
        matches!(ClusterPki::check(&secret, ClusterKeys::default(), true), Err(PkiError::Missing { paths }) if paths == [etcd.clone()])
    );
    assert!(!etcd.exists(), "no new file is created");
}

#[test]
fn an_interrupted_creation_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = crate::authority::Authority::load_or_create(
        folder.path(),
        CertificateAuthority::Etcd,
        KeyNumber::FIRST,
        100,
        None,
    )
    .unwrap();
    assert!(ClusterPki::load(folder.path(), ClusterKeys::default(), true).is_err());
    let made = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    assert_eq!(made.resolve(&SecretRef::CaKey { ca: CertificateAuthority::Etcd }).unwrap(), etcd.key);
    ClusterPki::load(folder.path(), ClusterKeys::default(), true).unwrap();
}

#[test]
fn refuses_a_truncated_file_and_a_key_of_another_certificate() {
    let folder = tempfile::tempdir().unwrap();
    ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let path = folder.path().join("ca-etcd.pem");
    let whole = std::fs::read_to_string(&path).unwrap();
    let other = std::fs::read_to_string(folder.path().join("ca-kubernetes.pem")).unwrap();
    let certificate_of = |text: &str| text[text.find("-----BEGIN CERT").unwrap()..].to_owned();
    let key_of = |text: &str| text[..text.find("-----BEGIN CERT").unwrap()].to_owned();
    for bad in [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        key_of(&whole),
        key_of(&whole) + &certificate_of(&other),
    ] {
        std::fs::write(&path, bad).unwrap();
        for read in [
            ClusterPki::load_or_create(folder.path(), 100),
            ClusterPki::load(folder.path(), ClusterKeys::default(), true),
        ] {
            let error = read.err().unwrap().to_string();
            assert!(error.contains("ca-etcd.pem") && error.contains("backup"), "{error}");
            assert!(!error.contains("BEGIN"), "{error}");
        }
    }
}

#[test]
fn an_expired_authority_signs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let authority = crate::authority::Authority::load_or_create(
        folder.path(),
        CertificateAuthority::Etcd,
        KeyNumber::FIRST,
        1,
        None,
    )
    .unwrap();
    let later = authority.not_after + time::Duration::seconds(1);
    let error = crate::leaf::issue(&leaf(CertificateAuthority::Etcd, Usage::Both), &authority, later, None)
        .err()
        .unwrap();
    assert!(error.to_string().contains("expired"), "{error}");
}

#[test]
fn an_error_names_the_secret_and_not_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let organizations = vec!["a".to_owned(), "b".to_owned()];
    let unfit = Leaf { organizations, ..leaf(CertificateAuthority::Etcd, Usage::Client) };
    let error = pki.resolve(&SecretRef::LeafKey(unfit)).unwrap_err().to_string();
    assert!(
        error.contains("the key of system:node:h1") && error.contains("several organizations"),
        "{error}"
    );
}

#[test]
fn the_service_account_pair_signs_and_verifies_in_openssl() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let out = tempfile::tempdir().unwrap();
    let key = write(out.path(), "key", &pki.resolve(&SecretRef::ServiceAccountKey).unwrap());
    let public = write(out.path(), "pub", &pki.resolve(&SecretRef::ServiceAccountPublicKey).unwrap());
    let token = write(out.path(), "token", "header.payload");
    let signature = out.path().join("signature").display().to_string();
    assert!(openssl(&["dgst", "-sha256", "-sign", &key, "-out", &signature, &token]).0);
    let (good, output) = openssl(&["dgst", "-sha256", "-verify", &public, "-signature", &signature, &token]);
    assert!(good, "{output}");
}

#[test]
fn the_kubeconfig_holds_every_context_and_the_matching_key() {
    use base64::Engine as _;
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let client = leaf(CertificateAuthority::Kubernetes, Usage::Client);
    let server = |context: &str, url: &str| KubeconfigServer { context: context.into(), url: url.into() };
    let servers = [server("demo", "https://172.30.0.11:6443"), server("demo-h2", "https://172.30.0.12:6443")];
    let text = kubeconfig(&pki, "demo-admin", &servers, "demo", &client).unwrap();
    assert!(text.contains("current-context: \"demo\"\n"), "{text}");
    assert_eq!(text.matches("certificate-authority-data: ").count(), 2);
    assert!(text.contains("server: \"https://172.30.0.12:6443\""));
    let data = text.split("client-key-data: ").nth(1).unwrap().trim();
    let key = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    assert_eq!(String::from_utf8(key).unwrap(), pki.resolve(&SecretRef::LeafKey(client)).unwrap());
}

#[test]
fn a_leaf_is_due_past_two_thirds_of_its_lifetime() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let pem = certificate(&pki, &leaf(CertificateAuthority::Kubernetes, Usage::Client));
    // It is valid from five minutes ago until 24 hours from now.
    let after = |minutes| OffsetDateTime::now_utc() + Duration::minutes(minutes);
    assert!(!is_due(&pem) && !is_due_at(&pem, after(15 * 60 + 57)));
    assert!(is_due_at(&pem, after(15 * 60 + 59)) && is_due_at(&pem, after(25 * 60)));
    assert!(is_due("no certificate"));
}

/// The authority as a host has it.
pub(crate) fn renewer(pki: &ClusterPki, ca: CertificateAuthority) -> Renewer {
    let text = |secret| pki.resolve(&secret).unwrap();
    let (certificate, key) = (text(SecretRef::CaCertificate { ca }), text(SecretRef::CaKey { ca }));
    Renewer::new(&certificate, &key, Path::new("/etc/kubernetes/pki/ca.crt")).unwrap()
}

#[test]
fn a_renewed_leaf_differs_in_its_dates_and_serial_number_only() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let out = tempfile::tempdir().unwrap();
    let wanted = leaf(CertificateAuthority::Kubernetes, Usage::Both);
    let old = certificate(&pki, &wanted);
    let key = pki.resolve(&SecretRef::LeafKey(wanted)).unwrap();
    let later = OffsetDateTime::now_utc() + Duration::hours(20);
    let path = Path::new("/etc/kubernetes/pki/x.crt");
    let authority = renewer(&pki, CertificateAuthority::Kubernetes);
    assert!(authority.has_issued(&old) && !renewer(&pki, CertificateAuthority::Etcd).has_issued(&old));
    let new = authority.renew(&old, &key, path, later.unix_timestamp()).unwrap();
    let text = |name: &str, pem: &str| {
        let file = write(out.path(), name, pem);
        let (good, text) = openssl(&["x509", "-noout", "-text", "-in", &file]);
        assert!(good, "{text}");
        let changing = ["Serial Number", "Not Before", "Not After"];
        let (mut kept, mut lines) = (Vec::new(), text.lines());
        while let Some(line) = lines.next() {
            if line.contains("Signature Value") {
                break;
            }
            if line.contains(changing[0]) {
                lines.next();
            } else if !changing.iter().any(|word| line.contains(word)) {
                kept.push(line.to_owned());
            }
        }
        kept
    };
    assert_eq!(text("old", &old), text("new", &new));
    let dates = |pem: &str| {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).unwrap();
        let validity = pem.parse_x509().unwrap().validity().clone();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    };
    let ((old_begin, old_end), (begin, end)) = (dates(&old), dates(&new));
    assert_eq!((begin, end - begin), (later.unix_timestamp() - 300, old_end - old_begin));
}

#[test]
fn a_leaf_with_another_key_or_at_a_time_before_its_authority_is_not_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let wanted = leaf(CertificateAuthority::Etcd, Usage::Client);
    let old = certificate(&pki, &wanted);
    let key = |leaf: Leaf| pki.resolve(&SecretRef::LeafKey(leaf)).unwrap();
    let authority = renewer(&pki, CertificateAuthority::Etcd);
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let renew = |key: &str, now| {
        authority.renew(&old, key, Path::new("/x.crt"), now).err().map(|error| error.to_string())
    };
    let other = key(Leaf { common_name: "other".to_owned(), ..wanted.clone() });
    assert!(renew(&other, now).unwrap().contains("do not belong together"));
    assert!(renew(&key(wanted.clone()), now - 86_400).unwrap().contains("clock"));
    assert!(renew(&key(wanted.clone()), now + 2 * 365 * 86_400).unwrap().contains("expired"));
    assert_eq!(renew(&key(wanted), now), None);
}

#[test]
fn a_signed_request_has_the_content_of_the_old_leaf_and_the_key_of_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap();
    let wanted = leaf(CertificateAuthority::Kubernetes, Usage::Client);
    let old = certificate(&pki, &wanted);
    let key = new_key().unwrap();
    let text = request_renewal(&old, &key, Path::new("/x.crt")).unwrap();
    let request = CertificateRequest::parse(&text, "x").unwrap();
    assert_eq!(Leaf { hours: wanted.hours, ..request.leaf.clone() }, wanted);
    let authority = renewer(&pki, CertificateAuthority::Kubernetes);
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let new = authority.sign(&request, 3600, now).unwrap();
    assert!(belong_together(&new, &key) && authority.has_issued(&new));
    let out = tempfile::tempdir().unwrap();
    let ca = SecretRef::CaCertificate { ca: CertificateAuthority::Kubernetes };
    let ca = write(out.path(), "ca", &pki.resolve(&ca).unwrap());
    let new = write(out.path(), "new", &new);
    let (good, output) = openssl(&["verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", &ca, &new]);
    assert!(good, "{output}");
}

#[test]
fn a_request_whose_signature_is_wrong_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
    let old = certificate(&pki, &leaf(CertificateAuthority::Kubernetes, Usage::Client));
    let text = request_renewal(&old, &new_key().unwrap(), Path::new("/x.crt")).unwrap();
    let middle = text.len() - 60;
    let other = if text.as_bytes()[middle] == b'A' { "B" } else { "A" };
    let mut broken = text;
    broken.replace_range(middle..=middle, other);
    assert!(CertificateRequest::parse(&broken, "x").is_err());
}

#[test]
fn the_life_of_an_identity_is_not_limited_in_tests() {
    let folder = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(folder.path(), 100).unwrap().with_longest_life(Some(10));
    let life = |hours| {
        let leaf = Leaf { hours, ..leaf(CertificateAuthority::Kubernetes, Usage::Client) };
        let (_, pem) = parse_x509_pem(certificate(&pki, &leaf).as_bytes()).unwrap();
        let validity = pem.parse_x509().unwrap().validity().clone();
        validity.not_after.timestamp() - validity.not_before.timestamp()
    };
    assert_eq!(life(365 * 24), 15 * 60);
    assert!(life(50 * 365 * 24) > 49 * 365 * 86_400);
}
