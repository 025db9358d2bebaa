//! `kubeon meta`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Arg, Args, Subcommand};
use kubeon_api::{HttpsUrl, JobPlacement};
use kubeon_install::{InstallOptions, names};

use super::format::FormatFlag;

pub(crate) const META_EXAMPLES: &str = "Examples:
  kubeon meta up                               lab, meta cluster and operator on this machine
  kubeon meta install                          into the cluster that `kubeon use` chose
  kubeon meta install --kubeconfig ~/.kube/config --watch-namespace team-a
  kubeon meta install --dry-run >kubeon.yaml   print the manifest; contacts no cluster";

pub(crate) const UNINSTALL_EXAMPLES: &str = "Examples:
  kubeon meta uninstall                        after the last cluster is deleted
  kubeon meta uninstall --hand-over            keep clusters and keys; the next `kubeon meta install` goes on with them";

const EXPORT_EXAMPLES: &str = "The file holds the clusters with their status, operations, inventories, credentials, keys and logs. Keep it secret. It does not
hold the installation: write down the flags of `kubeon meta install`.

Examples:
  kubeon meta export meta.json
  kubeon etcd new-key backup.key
  kubeon meta export meta.json --key backup.key     encrypted";

const RESTORE_EXAMPLES: &str = "The operator must not run, or it would execute operations whose status is not written yet. Objects that exist as in the file
stay, so an interrupted restore is run again. Two meta clusters must not run operators for the same hosts: stop the old one first.

Examples:
  kubeon meta install --kubeconfig new.conf --replicas 0 --watch-namespace team-a     as the old one, but stopped
  kubeon meta restore meta.json --kubeconfig new.conf --dry-run
  kubeon meta restore meta.json --kubeconfig new.conf
  kubeon meta install --kubeconfig new.conf --watch-namespace team-a                  starts the operator";

/// `kubeon meta`.
#[derive(Debug, Args)]
pub(crate) struct MetaArgs {
    #[command(subcommand)]
    pub command: MetaCommand,
}

/// Subcommands of `kubeon meta`.
#[derive(Debug, Subcommand)]
pub(crate) enum MetaCommand {
    /// Create a lab and a meta cluster with images and operator in one command
    Up(Box<MetaUp>),
    /// Install the operator into a cluster, or update it to this version
    #[command(after_help = META_EXAMPLES)]
    Install(Box<MetaInstall>),
    /// Remove the operator from a cluster; refused while it has clusters, unless they are handed over
    #[command(after_help = UNINSTALL_EXAMPLES)]
    Uninstall(MetaUninstall),
    /// Write the objects of the meta cluster to a file, for another meta cluster
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(MetaExportArgs),
    /// Create the objects of an export in another meta cluster, whose operator is stopped
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(MetaRestoreArgs),
}

/// Options of the installation.
#[derive(Debug, Args)]
pub(crate) struct InstallFlags {
    /// The operator's namespace
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE)]
    pub namespace: String,
    /// A further namespace whose Secrets and Jobs the operator manages; may be repeated [default: none; with meta up
    /// default and kubeonkube]
    #[arg(long = "watch-namespace", value_name = "NAME", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// The operator's image
    #[arg(long, value_name = "IMAGE", default_value = kubeon_install::OPERATOR_IMAGE)]
    pub image: String,
    /// An image that contains kubeon-runner; may be repeated, the last image runs the operations of a
    /// KubernetesCluster
    #[arg(
        long = "runner-image",
        value_name = "IMAGE",
        value_delimiter = ',',
        default_values_t = kubeon_install::RUNNER_IMAGES.map(str::to_owned)
    )]
    pub runner_images: Vec<String>,
    /// Another image that operations may run, or a prefix that ends with *; may be repeated; its Jobs get neither state nor token
    #[arg(long = "allowed-image", value_name = "IMAGE", value_delimiter = ',')]
    pub allowed_images: Vec<String>,
    /// Fields of the pods of operations as JSON: resources, nodeSelector, tolerations, priorityClassName, imagePullSecrets
    #[arg(long, value_name = "JSON", default_value = "", hide_default_value = true)]
    pub job_placement: JobPlacement,
    /// The most operations that run at the same time; others wait in the order of their creation [default: no limit]
    #[arg(long, value_name = "N")]
    pub max_operations: Option<NonZeroU16>,
    /// The same of the clusters of one region, which spec.cluster.region names [default: no limit]
    #[arg(long, value_name = "N")]
    pub max_operations_per_region: Option<NonZeroU16>,
    /// Refuse clusters in namespaces without the annotation kubeon.io/host-pool, which lists the addresses of their hosts
    #[arg(long)]
    pub require_host_pools: bool,
    /// An object store that spec.snapshots.endpoint of clusters may name, such as https://s3.example.org; may be repeated; others
    /// are refused [default: every one]
    #[arg(long = "snapshot-endpoint", value_name = "URL", value_delimiter = ',', value_parser = object_store)]
    pub snapshot_endpoints: Vec<String>,
    /// Answer admission reviews only for API servers that present their client certificate, as those of kubeon's clusters do
    /// [default with meta up]
    #[arg(long)]
    pub admission_only_api_servers: bool,
    /// The image that contains a bundle; {version} is replaced by the version, empty for none
    #[arg(long, value_name = "IMAGE", default_value = kubeon_install::BUNDLE_IMAGE)]
    pub bundle_image: String,
    /// Mount that image instead of copying its files into each Job; the nodes need Kubernetes 1.35 and containerd 2.2 or newer
    /// [default with meta up]
    #[arg(long)]
    pub mount_bundle_image: bool,
    /// The URL that receives the results of operations of a KubernetesCluster, such as
    /// https://gateway.example.com
    #[arg(long, value_name = "URL")]
    pub callback_url: Option<HttpsUrl>,
    /// The ConfigMap in the operator's namespace whose key ca.crt is the CA of the callback URL [default: the
    /// CAs of the runner's image]
    #[arg(long, value_name = "NAME", requires = "callback_url")]
    pub callback_ca_config_map: Option<String>,
    /// A file of keys (allowed_signers): operations use only bundles that one of them signed [default: the keys that this
    /// machine trusts, if any]
    #[arg(long, value_name = "FILE")]
    pub trusted_keys: Option<PathBuf>,
    /// The OpenTelemetry collector that receives traces, such as http://collector:4318 [default: none]
    #[arg(long, value_name = "URL", value_parser = collector)]
    pub otlp_endpoint: Option<String>,
    /// A further argument of the operator, such as --workers=64; may be repeated
    #[arg(long = "operator-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub operator_arguments: Vec<String>,
    /// Number of operator replicas; the leader reconciles, all replicas answer admission requests
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub replicas: u8,
    /// A further user that may write the fields of the operator; may be repeated
    #[arg(long = "operator-user", value_name = "NAME")]
    pub operators: Vec<String>,
}

impl InstallFlags {
    /// The options for the installation.
    pub(crate) fn options(&self) -> InstallOptions {
        let defaults = InstallOptions::default();
        InstallOptions {
            namespace: self.namespace.clone(),
            watch_namespaces: self.watch_namespaces.clone(),
            image: self.image.clone(),
            runner_images: self.runner_images.clone(),
            allowed_images: self.allowed_images.clone(),
            job_placement: self.job_placement.clone(),
            max_operations: self.max_operations,
            max_operations_per_region: self.max_operations_per_region,
            require_host_pools: self.require_host_pools,
            snapshot_endpoints: self.snapshot_endpoints.clone(),
            only_api_servers: self.admission_only_api_servers,
            bundle_image: self.bundle_image.clone(),
            mount_bundle_image: self.mount_bundle_image,
            callback_url: self.callback_url.as_ref().map(ToString::to_string).unwrap_or_default(),
            callback_ca: self.callback_ca_config_map.clone().unwrap_or_default(),
            otlp_endpoint: self.otlp_endpoint.clone().unwrap_or_default(),
            replicas: self.replicas.into(),
            extra_arguments: self.operator_arguments.clone(),
            operators: self.operators.clone(),
            ..defaults
        }
    }
}

/// Parses the URL of a collector. The URL is part of a Deployment that many users may read, so it must not
/// contain a password.
fn collector(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match address {
        Some(address) if address.contains('@') => {
            Err("must not contain a password, which all readers of the Deployment could see".to_owned())
        }
        Some(address) if !address.is_empty() => Ok(text.to_owned()),
        _ => Err("write http://HOST:PORT or https://HOST:PORT".to_owned()),
    }
}

/// Parses the address of an object store. Admission compares it with `spec.snapshots.endpoint` as text, so it has the same form.
fn object_store(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/');
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || ".:-[]".contains(letter);
    if host.is_empty() || !host.chars().all(is_known) {
        return Err("write https://HOST or https://HOST:PORT, as in spec.snapshots.endpoint".to_owned());
    }
    Ok(text.to_owned())
}

/// `kubeon meta install`.
#[derive(Debug, Args)]
pub(crate) struct MetaInstall {
    /// The kubeconfig of the cluster [default: the cluster that `kubeon use` chose]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub install: InstallFlags,
    /// Time limit for the start of the operator, in seconds; 0: do not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub wait: u32,
    /// Print the manifest to standard output; contacts no cluster
    #[arg(long)]
    pub dry_run: bool,
}

/// `kubeon meta uninstall`.
#[derive(Debug, Args)]
pub(crate) struct MetaUninstall {
    /// The kubeconfig of the cluster [default: the cluster that `kubeon use` chose]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The operator's namespace
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE)]
    pub namespace: String,
    /// Keep the clusters, their objects, their keys and the definitions
    #[arg(long)]
    pub hand_over: bool,
    /// Do not ask for confirmation
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// The meta cluster of an export or a restore, and the key of the file. The help is that of `kubeon meta export`.
#[derive(Debug, Args)]
pub(crate) struct MetaExportAccess {
    /// The kubeconfig of the meta cluster [default: the cluster that `kubeon use` chose]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The operator's namespace
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE)]
    pub namespace: String,
    /// Encrypt the file with this key, which `kubeon etcd new-key` wrote
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// `kubeon meta export`.
#[derive(Debug, Args)]
pub(crate) struct MetaExportArgs {
    /// The file. Only its owner may read it; one that exists is replaced
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub access: MetaExportAccess,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon meta restore`.
#[derive(Debug, Args)]
#[command(mut_args(restore_help))]
pub(crate) struct MetaRestoreArgs {
    /// The file that `kubeon meta export` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub access: MetaExportAccess,
    /// Replace objects that exist and differ from the file [default: refuse]
    #[arg(long)]
    pub replace: bool,
    /// Only show what would be created and replaced
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// The help of the shared flags in `kubeon meta restore`.
fn restore_help(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "kubeconfig" => arg
            .help("The kubeconfig of the other meta cluster [default: the cluster that `kubeon use` chose]"),
        "namespace" => arg.help("The operator's namespace, the same as in the export"),
        "key" => arg.help("The key of an encrypted file"),
        _ => arg,
    }
}

/// `kubeon meta up`.
#[derive(Debug, Args)]
pub(crate) struct MetaUp {
    /// The name of the meta cluster
    #[arg(value_name = "NAME", default_value = "meta")]
    pub name: String,
    /// Its Kubernetes version
    #[arg(long, value_name = "VERSION", default_value = "v1.36.3")]
    pub version: String,
    /// The lab
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub lab: String,
    /// Hosts of the lab: the first becomes the meta cluster, the others are free
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub hosts: u8,
    /// The folder with the images of operator, runner and bundle
    #[arg(long, value_name = "DIR", default_value = "target/images")]
    pub images: PathBuf,
    #[command(flatten)]
    pub install: InstallFlags,
}
