//! How containerd reaches registries: mirrors, a proxy, and further certificate authorities.

use std::fmt::Write as _;

use kubeon_api::kubernetes_cluster::ContainerRuntime;
use kubeon_api::{Cidr, HttpUrl, Registry};

use crate::paths::etc;

/// The registry of images without a registry in their name, and its server.
const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// Folders in which systems keep certificate authorities.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs:/etc/pki/tls/certs";

/// The folder with the further authorities; containerd reads every file in it.
#[must_use]
pub fn authorities_folder() -> String {
    etc("registry-authorities")
}

/// The file with the mirrors of a registry, and its text.
#[must_use]
pub fn mirrors(registry: &Registry, mirrors: &[HttpUrl]) -> (String, String) {
    let server = if registry.as_str() == DOCKER.0 { DOCKER.1 } else { registry.as_str() };
    let mut text = format!("server = \"https://{server}\"\n");
    for mirror in mirrors {
        let _ = write!(text, "\n[host.\"{mirror}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
        let location = mirror.as_str().split_once("://").map_or("", |(_, location)| location);
        if location.trim_end_matches('/').contains('/') {
            text.push_str("  override_path = true\n");
        }
    }
    (format!("/etc/containerd/certs.d/{registry}/hosts.toml"), text)
}

/// The environment of containerd. `cluster` are the networks of pods and Services.
#[must_use]
pub fn environment(runtime: &ContainerRuntime, cluster: [Cidr; 2]) -> Vec<(&'static str, String)> {
    let ContainerRuntime { http_proxy, https_proxy, no_proxy, ca_bundle, registry_mirrors: _ } = runtime;
    let mut environment = Vec::new();
    let https = https_proxy.as_ref().or(http_proxy.as_ref());
    environment.extend(http_proxy.iter().map(|proxy| ("HTTP_PROXY", proxy.to_string())));
    environment.extend(https.map(|proxy| ("HTTPS_PROXY", proxy.to_string())));
    if https.is_some() {
        let own = ["localhost".to_owned(), "127.0.0.0/8".to_owned()];
        let others = cluster.iter().map(ToString::to_string).chain(no_proxy.iter().map(ToString::to_string));
        environment.push(("NO_PROXY", own.into_iter().chain(others).collect::<Vec<_>>().join(",")));
    }
    environment.extend(
        ca_bundle
            .as_ref()
            .map(|_| ("SSL_CERT_DIR", format!("{SYSTEM_AUTHORITIES}:{}", authorities_folder()))),
    );
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_before_the_registry() {
        let urls =
            ["https://m.example:8443", "http://harbor.example/v2/proxy"].map(|url| url.parse().unwrap());
        let (path, text) = mirrors(&"docker.io".parse().unwrap(), &urls);
        assert_eq!(path, "/etc/containerd/certs.d/docker.io/hosts.toml");
        assert_eq!(
            text,
            "server = \"https://registry-1.docker.io\"\n\n[host.\"https://m.example:8443\"]\n  capabilities = [\"pull\", \"resolve\"]\n\n\
             [host.\"http://harbor.example/v2/proxy\"]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n"
        );
    }

    #[test]
    fn a_proxy_does_not_serve_the_cluster_itself() {
        let networks = ["10.96.0.0/12", "10.64.0.0/12"].map(|network| network.parse().unwrap());
        assert_eq!(environment(&ContainerRuntime::default(), networks), []);
        let runtime = ContainerRuntime {
            http_proxy: "http://proxy.example:3128".parse().ok(),
            no_proxy: vec![".example".parse().unwrap()],
            ..ContainerRuntime::default()
        };
        let expected = [
            ("HTTP_PROXY", "http://proxy.example:3128"),
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("NO_PROXY", "localhost,127.0.0.0/8,10.96.0.0/12,10.64.0.0/12,.example"),
        ];
        assert_eq!(environment(&runtime, networks), expected.map(|(name, value)| (name, value.to_owned())));
    }
}
