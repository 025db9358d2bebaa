//! The command line and the environment: the only place that reads either.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

const ABOUT: &str =
    "Process 1 of the Job of an operation: runs the work, forwards its output, reports the result";
const EXIT_CODES: &str = "Environment: OPERATION (creating, scaling-up, scaling-down, updating, rollbacking, renewing, repairing, snapshotting,
terminating, prechecking), CLUSTER_NAME,
CLUSTER_NAMESPACE, IGNORE_CHECKS (names of prechecks that may fail), WITHOUT (addresses or names of workers
to skip when they do not answer), PLAN (true: plan only), LATER_VERSIONS (how many follow), SNAPSHOT_FOLDER, SNAPSHOT_RESTORE, SNAPSHOT_KEEP,
SNAPSHOT_ENDPOINT, SNAPSHOT_REGION, and for the callback MASTER_HOSTS, NODE_HOSTS, ETCD_HOSTS.

With --state-secret a script gets KUBEON_HOME, where the runner restores the state before and saves it afterwards,
KUBEON_CACHE, KUBEON_BUNDLES, KUBEON_PROGRAM, KUBEON_PROGRESS, and KUBEON_HOLD_FOR: a program that succeeds once the
state is saved.

Exit codes: that of the work; 128 + n when signal n ended it; 143 and 130 after SIGTERM and SIGINT;
126 and 127 when the work cannot be started; 1 when the runner itself fails; 2 for unknown flags.";

/// `kubeon-runner`.
#[derive(Debug, Parser)]
#[command(name = "kubeon-runner", version = concat!("version ", env!("CARGO_PKG_VERSION")), about = ABOUT)]
#[command(max_term_width = 110)]
pub(crate) struct RunnerCli {
    /// The command.
    #[command(subcommand)]
    pub command: RunnerCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    /// Run the work of an operation
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunArgs>),
    /// Copy the contents of a folder into another one, as the image of a bundle does
    Copy {
        /// The source folder
        from: PathBuf,
        /// The target folder; it is created when it is missing
        to: PathBuf,
    },
}

/// The kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkKind {
    /// Run a script
    Script,
    /// Run the program kubeon as $OPERATION says
    Kubeon,
}

/// Flags of `kubeon-runner run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// The ClusterOperation whose status is written; without it no status is written
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// The kind of work
    #[arg(long, value_enum, default_value = "script")]
    pub action: WorkKind,
    /// The script
    #[arg(long, value_name = "FILE", default_value = "/bin/entrypoint.sh")]
    pub script: PathBuf,
    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "SECONDS", default_value = "25", value_parser = seconds)]
    pub grace: Duration,
    /// Seconds without output after which the runner logs that the work is still running; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub heartbeat: Duration,
    /// File in which the kubelet reads the termination message
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    pub termination_log: PathBuf,
    /// Mount of the log of the pod before this one, if the operation was paused or the pod was lost; may be missing
    #[arg(long, value_name = "DIR", default_value = "/earlier-log")]
    pub earlier_log: PathBuf,
    /// Folder of keys and passwords: ssh-privatekey, passphrase, username, password, sudo-password, known_hosts
    #[arg(long, value_name = "DIR", default_value = "/auth")]
    pub auth: PathBuf,
    #[command(flatten)]
    pub kubeon: KubeonFlags,
    #[command(flatten)]
    pub meta: MetaFlags,
    #[command(flatten)]
    pub callback: CallbackFlags,
}

/// Flags of `--action kubeon`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The program kubeon")]
pub(crate) struct KubeonFlags {
    /// The program [default: kubeon beside this one]
    #[arg(long, value_name = "FILE")]
    pub kubeon: Option<PathBuf>,
    /// Folder of cluster.json, or of hosts.yml and group_vars.yml
    #[arg(long, value_name = "DIR", default_value = "/conf")]
    pub conf: PathBuf,
    /// State that an earlier operation saved; may be missing
    #[arg(long, value_name = "FILE", default_value = "/state/state.tar.zst")]
    pub state: PathBuf,
    /// Mount of the ConfigMap with the host keys; without it only the state contains them
    #[arg(long, value_name = "DIR", default_value = "/known-hosts")]
    pub known_hosts: PathBuf,
    /// The bundle, or a folder of bundles; may be missing
    #[arg(long, value_name = "DIR", default_value = "/bundle")]
    pub bundle: PathBuf,
    /// The bundle of the version that runs, while it changes; may be missing
    #[arg(long, value_name = "DIR", default_value = "/bundle-in-use")]
    pub bundle_in_use: PathBuf,
    /// Mount of the Secret of the object store: credentials, snapshot.key, and perhaps ca.crt
    #[arg(long, value_name = "DIR", default_value = "/snapshots")]
    pub snapshots: PathBuf,
    /// Mount of the ConfigMap of the approved plan; may be missing
    #[arg(long, value_name = "DIR", default_value = "/approved-plan")]
    pub approved_plan: PathBuf,
    /// Folder for the temporary state of the program [default: $TMPDIR, else /tmp]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// How to reach the meta cluster, and where to write.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The meta cluster")]
pub(crate) struct MetaFlags {
    /// Kubeconfig of the meta cluster [default: the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the Secrets and the ConfigMap [default: $CLUSTER_NAMESPACE]
    #[arg(long, value_name = "NAME")]
    pub secret_namespace: Option<String>,
    /// Secret of the state [default: NAMESPACE-NAME-state; a script's state is not saved without it]
    #[arg(long, value_name = "NAME")]
    pub state_secret: Option<String>,
    /// Secret of the admin kubeconfig [default: NAMESPACE-NAME-kubeconfig]
    #[arg(long, value_name = "NAME")]
    pub kubeconfig_secret: Option<String>,
    /// Secret of the kubeconfig with which the operator observes the cluster; without it, none is saved
    #[arg(long, value_name = "NAME")]
    pub observer_secret: Option<String>,
    /// ConfigMap of the host keys [default: NAMESPACE-NAME-known-hosts]
    #[arg(long, value_name = "NAME")]
    pub known_hosts_config_map: Option<String>,
    /// The Job of this pod: when the runner is stopped, it saves its log in ConfigMap NAME-log
    #[arg(long, value_name = "NAME", requires_all = ["operation", "operation_uid"])]
    pub job: Option<String>,
    /// UID of the ClusterOperation, which owns that ConfigMap
    #[arg(long, value_name = "UID")]
    pub operation_uid: Option<String>,
}

/// Flags of the callback.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Callback")]
pub(crate) struct CallbackFlags {
    /// Server that receives the result, such as https://gateway.example; the route is added
    #[arg(long, value_name = "URL")]
    pub callback_url: Option<String>,
    /// File with the token for this operation
    #[arg(long, value_name = "FILE")]
    pub callback_token_file: Option<PathBuf>,
    /// Certificate authorities of the server, PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub callback_ca: Option<PathBuf>,
    /// Seconds after which the runner stops retrying
    #[arg(long = "callback-patience", value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub callback_timeout: Duration,
    /// The region in the route [default: the cluster's, else default]
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
}

/// The environment. An empty value counts as none.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunnerEnvironment {
    /// `$OPERATION`.
    pub operation: Option<String>,
    /// `$CLUSTER_NAME`.
    pub cluster: Option<String>,
    /// `$CLUSTER_NAMESPACE`.
    pub namespace: Option<String>,
    /// `$MASTER_HOSTS`, addresses separated by commas.
    pub masters: Option<String>,
    /// `$NODE_HOSTS`.
    pub nodes: Option<String>,
    /// `$ETCD_HOSTS`.
    pub etcd: Option<String>,
    /// `$IGNORE_CHECKS`, names of checks separated by commas.
    pub ignore: Option<String>,
    /// `$WITHOUT`, addresses and names of workers separated by commas.
    pub skip_hosts: Option<String>,
    /// `$PLAN`: whether the operation only plans.
    pub plan: bool,
    /// `$LATER_VERSIONS`: how many versions follow in other operations.
    pub later_versions: Option<u32>,
    /// `$SNAPSHOT_FOLDER`: the prefix of snapshots in an object store.
    pub snapshot_folder: Option<String>,
    /// `$SNAPSHOT_RESTORE`: the snapshot out of which the cluster is made.
    pub snapshot_restore: Option<String>,
    /// `$SNAPSHOT_KEEP`: how many snapshots stay.
    pub snapshot_keep: Option<String>,
    /// `$SNAPSHOT_ENDPOINT`: the address of the object store.
    pub snapshot_endpoint: Option<String>,
    /// `$SNAPSHOT_REGION`: the region of the object store.
    pub snapshot_region: Option<String>,
    /// `$TRACEPARENT`: the operation's trace.
    pub traceparent: Option<String>,
    /// `$OTEL_EXPORTER_OTLP_ENDPOINT`: the collector of traces.
    pub collector: Option<String>,
    /// Whether it runs in a pod: `$KUBERNETES_SERVICE_HOST` is set in every pod.
    pub in_a_pod: bool,
    /// The folder of temporary files.
    pub temporary: PathBuf,
    /// This program's own file.
    pub program: Option<PathBuf>,
}

impl RunnerEnvironment {
    /// Reads the environment.
    #[must_use]
    pub(crate) fn read() -> Self {
        let text = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            operation: text("OPERATION"),
            cluster: text("CLUSTER_NAME"),
            namespace: text("CLUSTER_NAMESPACE"),
            masters: text("MASTER_HOSTS"),
            nodes: text("NODE_HOSTS"),
            etcd: text("ETCD_HOSTS"),
            ignore: text("IGNORE_CHECKS"),
            skip_hosts: text("WITHOUT"),
            plan: text("PLAN").is_some_and(|text| text == "true"),
            later_versions: text("LATER_VERSIONS").and_then(|text| text.parse().ok()),
            snapshot_folder: text("SNAPSHOT_FOLDER"),
            snapshot_restore: text("SNAPSHOT_RESTORE"),
            snapshot_keep: text("SNAPSHOT_KEEP"),
            snapshot_endpoint: text("SNAPSHOT_ENDPOINT"),
            snapshot_region: text("SNAPSHOT_REGION"),
            traceparent: text("TRACEPARENT"),
            collector: text("OTEL_EXPORTER_OTLP_ENDPOINT"),
            in_a_pod: text("KUBERNETES_SERVICE_HOST").is_some(),
            temporary: env::temp_dir(),
            program: env::current_exe().ok(),
        }
    }
}

/// Flags and environment.
#[derive(Debug, Clone)]
pub(crate) struct RunnerSettings {
    /// The flags.
    pub flags: RunArgs,
    /// The environment.
    pub environment: RunnerEnvironment,
}

impl RunnerSettings {
    /// Whether the state must be saved in the meta cluster: in every Job, but not when a user runs the
    /// program.
    #[must_use]
    pub(crate) fn must_persist(&self) -> bool {
        self.flags.operation.is_some() || self.flags.meta.state_secret.is_some() || self.environment.in_a_pod
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 =
        text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| "not a number of seconds")?;
    if number > 604_800.0 {
        return Err("more than a week".to_owned());
    }
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_definition_is_valid() {
        use clap::CommandFactory as _;
        RunnerCli::command().debug_assert();
    }

    #[test]
    fn takes_seconds_with_and_without_their_unit() {
        assert_eq!(seconds("25"), Ok(Duration::from_secs(25)));
        assert_eq!(seconds("0.5s"), Ok(Duration::from_millis(500)));
        for wrong in ["", "-1", "NaN", "1e99", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
