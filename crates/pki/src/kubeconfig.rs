//! Kubeconfigs with embedded certificate and key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeon_ports::{SecretError, Secrets};
use kubeon_wire::{CertificateAuthority, Leaf, SecretRef};

/// An endpoint of the API server in a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigServer {
    /// The context's name, such as `demo` or `demo-h1`.
    pub context: String,
    /// Such as `https://172.30.0.11:6443`.
    pub url: String,
}

/// The text of a kubeconfig: a context for each server, the current context `default`, and one user, whose entry is called
/// `user`, with the embedded certificate and key of `client`. The text holds a private key: write it with mode 0600.
///
/// # Errors
/// When the authority or the client's certificate cannot be read or created.
pub fn kubeconfig(
    secrets: &dyn Secrets,
    user: &str,
    servers: &[KubeconfigServer],
    default: &str,
    client: &Leaf,
) -> Result<String, SecretError> {
    let embed = |secret| secrets.resolve(&secret).map(|text| STANDARD.encode(text));
    let authority = embed(SecretRef::CaCertificate { ca: CertificateAuthority::Kubernetes })?;
    let certificate = embed(SecretRef::LeafCertificate(client.clone()))?;
    let key = embed(SecretRef::LeafKey(client.clone()))?;
    let mut clusters = String::new();
    let mut contexts = String::new();
    for server in servers {
        let name = quote(&server.context);
        let url = quote(&server.url);
        clusters.push_str(&format!(
            "- name: {name}\n  cluster:\n    server: {url}\n    certificate-authority-data: {authority}\n"
        ));
        contexts.push_str(&format!(
            "- name: {name}\n  context:\n    cluster: {name}\n    user: {}\n",
            quote(user)
        ));
    }
    Ok(format!(
        "apiVersion: v1\nkind: Config\nclusters:\n{clusters}contexts:\n{contexts}current-context: {}\nusers:\n\
         - name: {}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n",
        quote(default),
        quote(user),
    ))
}

/// A YAML text in double quotes.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
