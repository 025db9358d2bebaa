//! The command line and the environment. No other module reads them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use kubeon_api::HttpsUrl;

use crate::namespaces::{CallerNamespaces, NamespaceRule};
use crate::oidc::OidcOptions;
use crate::server::{GatewayLimits, GatewayOptions};

/// `kubeon-gateway`.
#[derive(Debug, Clone, Parser)]
#[command(name = "kubeon-gateway", version, about = "Serves the REST API of a meta cluster")]
#[command(max_term_width = 110)]
pub struct GatewayCli {
    /// The kubeconfig of the meta cluster [default: the pod's service account, else $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The address of the REST API; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub address: SocketAddr,
    /// The address of /healthz and /readyz, without TLS; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    pub health_address: SocketAddr,
    /// The certificate of the server and its issuers, PEM; a changed file is read again
    #[arg(long, value_name = "FILE")]
    pub tls_cert: PathBuf,
    /// The private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: PathBuf,
    /// Certificate authorities of clients, PEM; without it, client certificates are ignored
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// The OpenID Connect provider whose tokens are accepted, as in its tokens; needs --impersonate-user
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<HttpsUrl>,
    /// The audience of tokens of the provider for the gateway
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,
    /// The claim with the user
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,
    /// The prefix of users, - for none [default: the issuer and #; none for the claim email]
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    pub oidc_username_prefix: Option<String>,
    /// The claim with the groups
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// The prefix of groups
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub oidc_groups_prefix: String,
    /// The authorities of the provider's certificate, PEM [default: those of this machine]
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    pub oidc_ca_file: Option<PathBuf>,
    /// A user with a client certificate or a token of the provider whom the gateway may impersonate; may be given several times
    #[arg(
        long = "impersonate-user",
        value_name = "NAME",
        env = "KUBEON_IMPERSONATE_USERS",
        value_delimiter = ','
    )]
    pub impersonate_users: Vec<String>,
    /// A group of such users that the gateway may impersonate; other groups are left out; may be given several times
    #[arg(
        long = "impersonate-group",
        value_name = "NAME",
        env = "KUBEON_IMPERSONATE_GROUPS",
        value_delimiter = ','
    )]
    pub impersonate_groups: Vec<String>,
    /// The namespace of callers of the API's version 1, as user:NAME=NAMESPACE or group:NAME=NAMESPACE; the first that matches
    /// counts; may be given several times [default: the namespace default]
    #[arg(
        long = "caller-namespace",
        value_name = "CALLER=NAMESPACE",
        env = "KUBEON_CALLER_NAMESPACES",
        value_delimiter = ','
    )]
    pub caller_namespaces: Vec<NamespaceRule>,
    /// The most connections at the same time; further ones are closed
    #[arg(long, value_name = "N", default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// The most connections of one user at the same time, each with one request or stream; the service accounts of a namespace are
    /// one user; further requests are answered with 429
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_per_user: u32,
    /// The most logs that are read at the same time, each with up to 2 MiB of memory; further requests are answered with 503
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub logs: u32,
    /// The most logs that one user reads at the same time; further requests are answered with 429
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub logs_per_user: u32,
    /// The seconds after which a client that reads nothing of what is sent to it is disconnected
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub write_timeout: u16,
    /// The timeout of a request to the API server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=300))]
    pub request_timeout: u16,
    /// The log filter, such as info or kubeon_gateway=debug
    #[arg(long, value_name = "FILTER", env = "KUBEON_LOG", default_value = "info,kube_client=off")]
    pub log: String,
}

impl GatewayCli {
    /// The options of the gateway.
    ///
    /// # Errors
    /// When flags contradict each other.
    pub fn options(self) -> anyhow::Result<GatewayOptions> {
        let impersonates = !self.impersonate_users.is_empty() || !self.impersonate_groups.is_empty();
        anyhow::ensure!(
            self.client_ca.is_some() || self.oidc_issuer_url.is_some() || !impersonates,
            "--impersonate-user and --impersonate-group need --client-ca or --oidc-issuer-url: only their users are impersonated"
        );
        let oidc = self.oidc_issuer_url.zip(self.oidc_client_id).map(|(issuer, client_id)| OidcOptions {
            issuer,
            client_id,
            username_claim: self.oidc_username_claim,
            username_prefix: self.oidc_username_prefix,
            groups_claim: self.oidc_groups_claim,
            groups_prefix: self.oidc_groups_prefix,
            authorities: self.oidc_ca_file,
        });
        let limits = GatewayLimits {
            connections: usize::try_from(self.connections)?,
            connections_per_user: usize::try_from(self.connections_per_user)?,
            logs: usize::try_from(self.logs)?,
            logs_per_user: usize::try_from(self.logs_per_user)?,
            write_timeout: Duration::from_secs(u64::from(self.write_timeout)),
        };
        Ok(GatewayOptions {
            kubeconfig: self.kubeconfig,
            address: self.address,
            health_address: self.health_address,
            certificate: self.tls_cert,
            key: self.tls_key,
            client_authorities: self.client_ca,
            oidc,
            impersonated_users: self.impersonate_users.into_iter().collect(),
            impersonated_groups: self.impersonate_groups.into_iter().collect(),
            namespaces: CallerNamespaces::new(self.caller_namespaces),
            limits,
            request_timeout: Duration::from_secs(u64::from(self.request_timeout)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(flags: &[&str]) -> GatewayCli {
        GatewayCli::try_parse_from([&["x", "--tls-cert=c", "--tls-key=k"], flags].concat()).unwrap()
    }

    #[test]
    fn the_command_line_is_valid() {
        use clap::CommandFactory as _;
        GatewayCli::command().debug_assert();
    }

    #[test]
    fn nobody_is_impersonated_without_authorities_of_clients() {
        assert!(parsed(&[]).options().is_ok());
        assert!(parsed(&["--client-ca=ca", "--impersonate-user=alice"]).options().is_ok());
        let refused = parsed(&["--impersonate-user=alice"]).options().unwrap_err();
        assert!(refused.to_string().contains("need --client-ca"), "{refused}");
        let provider = ["--oidc-issuer-url=https://login.example.org", "--oidc-client-id=kubeon"];
        let options = parsed(&[&provider[..], &["--impersonate-user=alice"]].concat()).options().unwrap();
        assert_eq!(options.oidc.unwrap().client_id, "kubeon");
        assert!(GatewayCli::try_parse_from(["x", "--tls-cert=c", "--tls-key=k", provider[0]]).is_err());
    }
}
