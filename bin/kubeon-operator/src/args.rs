//! The command line and the environment. No other module reads them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgAction, Parser};
use kubeon_api::{HttpsUrl, JobPlacement, Version};
use kubeon_bundle::{Catalogue, TrustedSigners};
use kubeon_operations::settings::{Callback, LIMIT, LOG_KIB};
use kubeon_operations::{BundleImage, OperatorSettings};

use crate::OperatorOptions;
use crate::admission::Admission;
use crate::operation_limit::OperationLimits;

/// The file with the namespace of the pod.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// `kubeon-operator`.
#[derive(Debug, Clone, Parser)]
#[command(name = "kubeon-operator", version, about = "Creates business clusters from a meta cluster")]
#[command(max_term_width = 110)]
pub struct OperatorCli {
    /// The kubeconfig of the meta cluster [default: the pod's service account, else $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The operator's namespace, where Jobs of operations run [default: the pod's namespace, else
    /// kubeon-system]
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE")]
    pub namespace: Option<String>,
    /// Another namespace whose ConfigMaps, Secrets, Jobs and Pods the operator reads; may be given several
    /// times
    #[arg(
        long = "watch-namespace",
        value_name = "NAME",
        env = "KUBEON_WATCH_NAMESPACES",
        value_delimiter = ','
    )]
    pub watch_namespaces: Vec<String>,
    /// An image that contains kubeon-runner; may be given several times, the last one runs derived operations
    #[arg(
        long = "runner-image",
        value_name = "IMAGE",
        env = "KUBEON_RUNNER_IMAGES",
        value_delimiter = ',',
        default_values_t = [
            kubeon_api::kubeonkube::RUNNER_ALIAS.to_owned(),
            concat!("kubeon/kubeon-runner:v", env!("CARGO_PKG_VERSION")).to_owned(),
        ]
    )]
    pub runner_images: Vec<String>,
    /// Another image that operations may run, or a prefix that ends with *; may be given several times; its Jobs get neither
    /// state nor token
    #[arg(
        long = "allowed-image",
        value_name = "IMAGE",
        env = "KUBEON_ALLOWED_IMAGES",
        value_delimiter = ','
    )]
    pub allowed_images: Vec<String>,
    /// Fields of the pods of Jobs as JSON: resources, nodeSelector, tolerations, priorityClassName, imagePullSecrets
    #[arg(long, value_name = "JSON", env = "KUBEON_JOB_PLACEMENT", default_value = "")]
    pub job_placement: JobPlacement,
    /// The image whose entry point copies a bundle to /target; {version} is replaced by the version; empty:
    /// no image
    #[arg(
        long,
        value_name = "IMAGE",
        env = "KUBEON_BUNDLE_IMAGE",
        default_value = "kubeon/kubeon-bundle:{version}"
    )]
    pub bundle_image: String,
    /// Mount the image of the bundle instead of copying its files into each Job; the nodes need Kubernetes 1.35 and containerd 2.2
    /// or newer
    #[arg(long, env = "KUBEON_MOUNT_BUNDLE_IMAGE")]
    pub mount_bundle_image: bool,
    /// The server that gets the results of operations of a KubernetesCluster, such as
    /// https://gateway.example.com
    #[arg(long, value_name = "URL", env = "KUBEON_CALLBACK_URL")]
    pub callback_url: Option<HttpsUrl>,
    /// Certificate authorities of that server, PEM [default: those of the runner's image]
    #[arg(long, value_name = "FILE", requires = "callback_url")]
    pub callback_ca: Option<PathBuf>,
    /// A key whose bundles Jobs accept, as a line of the format allowed_signers; may be given several times [default: Jobs accept
    /// every bundle]
    #[arg(long = "trusted-key", value_name = "LINE", env = "KUBEON_TRUSTED_KEYS", value_delimiter = '\n')]
    pub trusted_keys: Vec<String>,
    /// The Kubernetes version of clusters that do not specify one
    #[arg(long, value_name = "VERSION", default_value = "v1.36.3")]
    pub default_version: String,
    /// Reconcile only while this replica holds the lease, so that several replicas may run
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = true, default_missing_value = "true")]
    pub leader_elect: bool,
    /// The address of /metrics; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub metrics_address: SocketAddr,
    /// The address of /healthz and /readyz; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    pub health_address: SocketAddr,
    /// The address of the admission webhook; without it, the webhook is off
    #[arg(long, value_name = "ADDRESS")]
    pub admission_address: Option<SocketAddr>,
    /// Another name or address of the webhook for its certificate; may be given several times
    #[arg(long = "admission-name", value_name = "NAME", value_delimiter = ',')]
    pub admission_names: Vec<String>,
    /// Answer admission reviews only for API servers that present their client certificate
    #[arg(long, requires = "admission_address", env = "KUBEON_ADMISSION_ONLY_API_SERVERS")]
    pub admission_only_api_servers: bool,
    /// A Kubernetes version that clusters may use; may be given several times [default: all of the catalogue]
    #[arg(
        long = "catalogue-version",
        value_name = "VERSION",
        env = "KUBEON_CATALOGUE_VERSIONS",
        value_delimiter = ','
    )]
    pub catalogue_versions: Vec<Version>,
    /// The OpenTelemetry collector for traces, such as http://collector:4318; without it, no traces are sent
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true)]
    pub otlp_endpoint: Option<String>,
    /// The name of this process; a unique suffix is added [default: $HOSTNAME]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub name: Option<String>,
    /// The number of clusters that are reconciled at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub workers: u16,
    /// The most operations that run at the same time; others wait in the order of their creation [default: no limit]
    #[arg(long, value_name = "N", env = "KUBEON_MAX_OPERATIONS")]
    pub max_operations: Option<NonZeroUsize>,
    /// The same of the clusters of one region, which `spec.cluster.region` names [default: no limit]
    #[arg(long, value_name = "N", env = "KUBEON_MAX_OPERATIONS_PER_REGION")]
    pub max_operations_per_region: Option<NonZeroUsize>,
    /// The most KiB of the logs of a cluster that are kept: the oldest logs are removed, except for the newest one and that of the
    /// last failure
    #[arg(long, value_name = "KIB", default_value_t = LOG_KIB)]
    pub log_kib_per_cluster: u32,
    /// The seconds between two observations of a business cluster; 0: Ready does not follow its API server and nodes
    #[arg(long, value_name = "SECONDS", env = "KUBEON_OBSERVE_EVERY", default_value_t = 20)]
    pub observe_every: u32,
    /// The timeout of a request to the API server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=300))]
    pub request_timeout: u16,
    /// Only check whether the operator may be removed: an error if it has clusters
    #[arg(long)]
    pub check_uninstall: bool,
    /// The log filter, such as info or kubeon_operator=debug
    #[arg(long, value_name = "FILTER", env = "KUBEON_LOG", default_value = "info,kube_client=off")]
    pub log: String,
}

impl OperatorCli {
    /// The options of the operator, with defaults from the pod.
    ///
    /// # Errors
    /// When an address or name is invalid, or a file cannot be read.
    pub fn options(self) -> anyhow::Result<OperatorOptions> {
        let callback = callback(self.callback_url, self.callback_ca.as_deref())?;
        let own = || std::fs::read_to_string(NAMESPACE_FILE).ok().map(|text| text.trim().to_owned());
        let namespace = self.namespace.filter(|name| !name.is_empty()).or_else(own);
        let host = || std::env::var("HOSTNAME").ok();
        let name = self.name.or_else(host).filter(|name| !name.is_empty());
        let admission = self.admission_address.map(|address| {
            let versions = versions(self.catalogue_versions.clone())?;
            anyhow::Ok(Admission {
                address,
                names: self.admission_names,
                versions,
                only_api_servers: self.admission_only_api_servers,
            })
        });
        Ok(OperatorOptions {
            kubeconfig: self.kubeconfig,
            settings: OperatorSettings {
                namespace: namespace.unwrap_or_else(|| "kubeon-system".to_owned()),
                watched: self.watch_namespaces,
                runner_images: self.runner_images,
                allowed_images: self.allowed_images,
                placement: self.job_placement,
                bundle_image: Some(self.bundle_image)
                    .filter(|image| !image.is_empty())
                    .map(|name| BundleImage { name, is_mounted: self.mount_bundle_image }),
                default_version: self.default_version,
                versions: versions(self.catalogue_versions)?,
                history_limit: LIMIT,
                log_kib: self.log_kib_per_cluster,
                callback,
                trusted_keys: trusted_keys(self.trusted_keys)?,
            },
            leader_elect: self.leader_elect,
            metrics_address: self.metrics_address,
            health_address: self.health_address,
            admission: admission.transpose()?,
            workers: usize::from(self.workers),
            limits: OperationLimits { all: self.max_operations, region: self.max_operations_per_region },
            observe_every: (self.observe_every > 0)
                .then(|| Duration::from_secs(u64::from(self.observe_every))),
            request_timeout: Duration::from_secs(u64::from(self.request_timeout)),
            // OpenTelemetry's SDK reads the other settings of the collector from the environment.
            collector: self.otlp_endpoint.filter(|url| !url.is_empty()),
            instance: format!("{}_{}", name.as_deref().unwrap_or("kubeon-operator"), uuid::Uuid::new_v4()),
        })
    }
}

/// The callback. A file without a certificate is an error, because otherwise every callback would fail later.
fn callback(url: Option<HttpsUrl>, file: Option<&Path>) -> anyhow::Result<Option<Callback>> {
    let Some(url) = url else { return Ok(None) };
    let read = |file: &Path| {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("reading --callback-ca {}", file.display()))?;
        let has_certificate = text.contains("-----BEGIN CERTIFICATE-----");
        anyhow::ensure!(has_certificate, "--callback-ca {} holds no certificate in PEM", file.display());
        Ok(text)
    };
    Ok(Some(Callback { url, authorities: file.map(read).transpose()? }))
}

/// The lines with keys. A line that is not one is an error, because otherwise every operation would fail later.
fn trusted_keys(lines: Vec<String>) -> anyhow::Result<Vec<String>> {
    let lines: Vec<String> =
        lines.into_iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    TrustedSigners::parse(&lines.join("\n"), Path::new("--trusted-key"))?;
    Ok(lines)
}

/// The versions on the command line, else those of the catalogue; oldest first.
fn versions(named: Vec<Version>) -> anyhow::Result<Vec<Version>> {
    let mut versions = named;
    if versions.is_empty() {
        versions.extend(Catalogue::embedded().context("reading the catalogue")?.versions());
    }
    versions.sort();
    versions.dedup();
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_may_use_the_versions_of_the_catalogue_or_of_the_flag() {
        let all = versions(Vec::new()).unwrap();
        assert!(!all.is_empty() && all.is_sorted());
        let named = ["v1.36.3", "v1.35.4", "v1.36.3"].map(|text| text.parse().unwrap()).to_vec();
        let texts: Vec<_> = versions(named).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["v1.35.4", "v1.36.3"]);
    }

    #[test]
    fn the_command_line_is_valid() {
        use clap::CommandFactory as _;
        OperatorCli::command().debug_assert();
    }

    #[test]
    fn the_flags_of_the_callback_are_validated() {
        let parsed = |flags: &[&str]| OperatorCli::try_parse_from([&["x"], flags].concat());
        let refused = parsed(&["--callback-url=http://gateway.example"]).unwrap_err().to_string();
        assert!(refused.contains("is not a URL that begins with https://"), "{refused}");
        assert!(parsed(&["--callback-ca=ca.crt"]).is_err(), "--callback-ca needs --callback-url");
        let callback_of =
            |flags: &[&str]| parsed(flags).unwrap().options().map(|options| options.settings.callback);
        assert_eq!(callback_of(&[]).unwrap(), None);
        let url = "--callback-url=https://gateway.example";
        assert_eq!(callback_of(&[url]).unwrap().unwrap().authorities, None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        let ca = format!("--callback-ca={}", file.display());
        assert!(callback_of(&[url, &ca]).unwrap_err().to_string().contains("reading --callback-ca"));
        std::fs::write(&file, "no certificate").unwrap();
        assert!(callback_of(&[url, &ca]).unwrap_err().to_string().contains("holds no certificate in PEM"));
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\n").unwrap();
        assert!(callback_of(&[url, &ca]).unwrap().unwrap().authorities.is_some());
    }

    #[test]
    fn leader_election_can_be_turned_off() {
        let leads =
            |flags: &[&str]| OperatorCli::try_parse_from([&["x"], flags].concat()).unwrap().leader_elect;
        assert!(leads(&[]) && leads(&["--leader-elect"]) && leads(&["--leader-elect=true"]));
        assert!(!leads(&["--leader-elect=false"]));
    }
}
