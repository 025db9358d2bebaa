use std::process::{Command, Stdio};

use super::*;
use crate::bundle::tests::Fixture;

const NAME: &str = "release@example.org";

/// A bundle, and keys that `ssh-keygen` made.
struct Signing {
    _fixture: Fixture,
    folder: tempfile::TempDir,
    bundle: Bundle,
}

impl Signing {
    fn new() -> Self {
        let fixture = Fixture::new();
        let bundle = fixture.build().unwrap();
        Self { _fixture: fixture, folder: tempfile::tempdir().unwrap(), bundle }
    }

    /// Makes a key pair and returns the path of the private key.
    fn key(&self, kind: &str, passphrase: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{kind}{}", passphrase.len()));
        let arguments = ["-q", "-t", kind, "-N", passphrase, "-C", NAME, "-f", path.to_str().unwrap()];
        ssh_keygen(&arguments, b"");
        path
    }

    /// Trusts the key with these options.
    fn signers(&self, key: &Path, options: &str) -> TrustedSigners {
        let public = fs::read_to_string(key.with_extension("pub")).unwrap();
        let space = if options.is_empty() { "" } else { " " };
        let path = self.folder.path().join("allowed_signers");
        fs::write(&path, format!("# keys\n\n{NAME} {options}{space}{public}")).unwrap();
        TrustedSigners::read(&path).unwrap()
    }
}

fn ssh_keygen(arguments: &[&str], input: &[u8]) {
    let mut child = Command::new("ssh-keygen")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-12-01T12:00:00Z")
}

#[test]
fn ssh_keygen_accepts_our_signature() {
    for kind in ["ed25519", "ecdsa"] {
        let signing = Signing::new();
        let path = signing.key(kind, "");
        let key = read_key(&path, None).unwrap();
        sign(&signing.bundle, &key).unwrap();
        let signers = signing.signers(&path, "");
        assert_eq!(signers.check(&signing.bundle, now()).unwrap(), NAME);
        let file = |name: &str| signing.bundle.root().join(name).display().to_string();
        let allowed = signing.folder.path().join("allowed_signers").display().to_string();
        let (index, signature) = (fs::read(file(INDEX_FILE)).unwrap(), file(SIGNATURE_FILE));
        let ask = ["-Y", "verify", "-n", NAMESPACE, "-f", &allowed, "-I", NAME, "-s", &signature];
        ssh_keygen(&ask, &index);
    }
}

#[test]
fn we_accept_the_signature_of_ssh_keygen() {
    let signing = Signing::new();
    let path = signing.key("ed25519", "");
    let index = signing.bundle.root().join(INDEX_FILE).display().to_string();
    ssh_keygen(&["-Y", "sign", "-q", "-n", NAMESPACE, "-f", path.to_str().unwrap(), &index], b"");
    assert_eq!(signing.signers(&path, "").check(&signing.bundle, now()).unwrap(), NAME);
    let public = TrustedSigners::read(&path.with_extension("pub")).unwrap();
    assert_eq!(public.check(&signing.bundle, now()).unwrap(), NAME, "a public key alone");
}

#[test]
fn a_signature_of_another_key_or_for_something_else_is_refused() {
    let signing = Signing::new();
    let (good, other) = (signing.key("ed25519", ""), signing.key("ecdsa", ""));
    let refused = |signers: &TrustedSigners| signers.check(&signing.bundle, now()).unwrap_err();
    let trusted = signing.signers(&good, "");
    assert!(matches!(refused(&trusted), SignatureError::Unsigned { .. }));
    let fingerprint = sign(&signing.bundle, &read_key(&other, None).unwrap()).unwrap();
    let error = refused(&trusted);
    assert!(matches!(&error, SignatureError::NotTrusted { found, .. } if *found == fingerprint), "{error}");
    sign(&signing.bundle, &read_key(&good, None).unwrap()).unwrap();
    assert!(matches!(
        refused(&signing.signers(&good, "namespaces=\"git\"")),
        SignatureError::NotTrusted { .. }
    ));
    signing.signers(&good, "namespaces=\"git,kubeon-bundle\"").check(&signing.bundle, now()).unwrap();
    let index = signing.bundle.root().join(INDEX_FILE).display().to_string();
    fs::remove_file(signing.bundle.root().join(SIGNATURE_FILE)).unwrap();
    ssh_keygen(&["-Y", "sign", "-q", "-n", "file", "-f", good.to_str().unwrap(), &index], b"");
    assert!(refused(&trusted).to_string().contains("it is for file"));
    fs::write(signing.bundle.root().join(SIGNATURE_FILE), "no signature").unwrap();
    assert!(matches!(refused(&trusted), SignatureError::Shape { .. }));
}

#[test]
fn a_changed_index_is_refused() {
    let signing = Signing::new();
    let path = signing.key("ed25519", "");
    sign(&signing.bundle, &read_key(&path, None).unwrap()).unwrap();
    let index = signing.bundle.root().join(INDEX_FILE);
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, format!("{text} ")).unwrap();
    let error = signing.signers(&path, "").check(&signing.bundle, now()).unwrap_err();
    assert!(matches!(error, SignatureError::Mismatch { .. }), "{error}");
}

#[test]
fn a_key_is_trusted_between_its_limits_only() {
    let signing = Signing::new();
    let path = signing.key("ed25519", "");
    sign(&signing.bundle, &read_key(&path, None).unwrap()).unwrap();
    let signers = signing.signers(&path, "valid-after=\"20260101Z\",valid-before=\"202701011230Z\"");
    let check = |time: &str| signers.check(&signing.bundle, at(time));
    check("2026-01-01T00:00:00Z").unwrap();
    check("2027-01-01T12:29:59Z").unwrap();
    assert!(check("2025-12-31T23:59:59Z").unwrap_err().to_string().contains("it is trusted from"));
    assert!(check("2027-01-01T12:30:00Z").unwrap_err().to_string().contains("it was trusted until"));
}

#[test]
fn an_invalid_file_of_keys_names_the_line() {
    let path = Path::new("allowed_signers");
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ+dmPBOfK1vJ1HhJHMUKmk3EwmM5mM5zM0fJZ1mM5z0";
    for line in ["alone", "name no-key", "name valid-before=\"soon\" ssh-ed25519 AAAA"] {
        let error = TrustedSigners::parse(&format!("# a\n{line}\n"), path).unwrap_err().to_string();
        assert!(error.starts_with("allowed_signers, line 2: "), "{error}");
    }
    let error = TrustedSigners::parse(&format!("name color=\"red\" {key}\n"), path);
    assert!(error.is_err());
}

#[test]
fn a_protected_key_needs_its_passphrase() {
    let signing = Signing::new();
    let path = signing.key("ed25519", "secret");
    assert!(matches!(read_key(&path, None), Err(SignatureError::Encrypted { .. })));
    assert!(matches!(read_key(&path, Some("wrong")), Err(SignatureError::Key { .. })));
    sign(&signing.bundle, &read_key(&path, Some("secret")).unwrap()).unwrap();
    let public = path.with_extension("pub");
    assert!(matches!(read_key(&public, None), Err(SignatureError::Key { .. })), "a public key cannot sign");
    assert!(read_key(Path::new("/no/such/key"), None).unwrap_err().to_string().contains("/no/such/key"));
}

#[test]
fn a_signature_crosses_the_gap_with_its_bundle() {
    let signing = Signing::new();
    let path = signing.key("ed25519", "");
    sign(&signing.bundle, &read_key(&path, None).unwrap()).unwrap();
    let file = signing.folder.path().join("bundle.tar");
    crate::archive::save(&signing.bundle, &file).unwrap();
    let store = crate::BundleStore::at(&signing.folder.path().join("cache"));
    let loaded = crate::archive::load(&store, &file).unwrap();
    assert_eq!(signing.signers(&path, "").check(&loaded, now()).unwrap(), NAME);
}
