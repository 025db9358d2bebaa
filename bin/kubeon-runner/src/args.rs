//! The command line and the environment: the only place that reads either.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

const ABOUT: &str =
    "Process 1 of the Job of an operation: starts the work, passes its words on, tells what came of it";
const EXIT_CODES: &str = "Environment: OPERATION (creating, scaling-up, scaling-down, terminating, prechecking), CLUSTER_NAME,
CLUSTER_NAMESPACE, IGNORE_CHECKS (checks of the hosts that may fail, by name), WITHOUT (workers to do without where they
do not answer, by address or name), and for the callback MASTER_HOSTS, NODE_HOSTS, ETCD_HOSTS.

With --state-secret a script gets KUBEON_HOME, where an earlier state is put before and kept afterwards, KUBEON_CACHE,
KUBEON_BUNDLES, KUBEON_PROGRAM, KUBEON_PROGRESS, and KUBEON_HOLD_FOR: a program that succeeds once the state is kept.

Exit codes: those of the work; 128 + n when signal n ended it; 143 and 130 when told to stop by SIGTERM and SIGINT;
126 and 127 when it cannot be started; 1 when the runner itself fails, 2 for flags that it does not know.";

/// `kubeon-runner`.
#[derive(Debug, Parser)]
#[command(name = "kubeon-runner", version = concat!("version ", env!("CARGO_PKG_VERSION")), about = ABOUT)]
#[command(max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the runner can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Do an operation's work
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunArgs>),
    /// Copy what is in a folder into another one, as the image of a bundle does
    Copy {
        /// The folder
        from: PathBuf,
        /// Where to; it is made when it is not there
        to: PathBuf,
    },
}

/// What the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// A script that lies ready
    Script,
    /// The program kubeon, by $OPERATION
    Kubeon,
}

/// Flags of `kubeon-runner run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The ClusterOperation whose status is written; without it none is
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// What the work is
    #[arg(long, value_enum, default_value = "script")]
    pub action: Action,
    /// The script
    #[arg(long, value_name = "FILE", default_value = "/bin/entrypoint.sh")]
    pub script: PathBuf,
    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "SECONDS", default_value = "25", value_parser = seconds)]
    pub grace: Duration,
    /// Seconds without a word after which the runner says that it lives; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub heartbeat: Duration,
    /// Where the kubelet reads why the work ended
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    pub termination_log: PathBuf,
    /// Where keys and passwords lie: ssh-privatekey, passphrase, username, password, sudo-password, known_hosts
    #[arg(long, value_name = "DIR", default_value = "/auth")]
    pub auth: PathBuf,
    #[command(flatten)]
    pub kubeon: KubeonFlags,
    #[command(flatten)]
    pub meta: MetaFlags,
    #[command(flatten)]
    pub callback: CallbackFlags,
}

/// What `--action kubeon` works with.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The program kubeon")]
pub struct KubeonFlags {
    /// The program [default: kubeon beside this one]
    #[arg(long, value_name = "FILE")]
    pub kubeon: Option<PathBuf>,
    /// Where cluster.json lies, or hosts.yml and group_vars.yml
    #[arg(long, value_name = "DIR", default_value = "/conf")]
    pub conf: PathBuf,
    /// What an earlier operation left; need not be there
    #[arg(long, value_name = "FILE", default_value = "/state/state.tar.zst")]
    pub state: PathBuf,
    /// Where the ConfigMap with the keys of the hosts is mounted; without it they are kept in the state alone
    #[arg(long, value_name = "DIR", default_value = "/known-hosts")]
    pub known_hosts: PathBuf,
    /// The bundle, or a folder of bundles; need not be there
    #[arg(long, value_name = "DIR", default_value = "/bundle")]
    pub bundle: PathBuf,
    /// Where a folder for the program's state is made [default: $TMPDIR, else /tmp]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// How the meta cluster is reached, and what is written there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The meta cluster")]
pub struct MetaFlags {
    /// How to reach it [default: the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the Secrets and the ConfigMap [default: $CLUSTER_NAMESPACE]
    #[arg(long, value_name = "NAME")]
    pub secret_namespace: Option<String>,
    /// Secret of the state [default: NAMESPACE-NAME-state; a script keeps none without it]
    #[arg(long, value_name = "NAME")]
    pub state_secret: Option<String>,
    /// Secret of the admin kubeconfig [default: NAMESPACE-NAME-kubeconfig]
    #[arg(long, value_name = "NAME")]
    pub kubeconfig_secret: Option<String>,
    /// ConfigMap of the keys of the hosts [default: NAMESPACE-NAME-known-hosts]
    #[arg(long, value_name = "NAME")]
    pub known_hosts_config_map: Option<String>,
}

/// Who else is told what came of the work.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Callback")]
pub struct CallbackFlags {
    /// Where to, such as https://gateway.example; the route is added
    #[arg(long, value_name = "URL")]
    pub callback_url: Option<String>,
    /// A file with the token that is good for this operation
    #[arg(long, value_name = "FILE")]
    pub callback_token_file: Option<PathBuf>,
    /// Certificates that vouch for the listener, PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub callback_ca: Option<PathBuf>,
    /// Seconds for which it is tried again
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub callback_patience: Duration,
    /// The region in the route [default: the cluster's, else default]
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
}

/// What the environment says. An empty value counts as none.
#[derive(Debug, Clone, Default)]
pub struct Environment {
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
    pub without: Option<String>,
    /// `$TRACEPARENT`: where the operation's trace goes on.
    pub traceparent: Option<String>,
    /// `$OTEL_EXPORTER_OTLP_ENDPOINT`: who collects traces.
    pub collector: Option<String>,
    /// Whether it runs in a pod: `$KUBERNETES_SERVICE_HOST` is set in every one.
    pub in_a_pod: bool,
    /// Where temporary files go.
    pub temporary: PathBuf,
    /// This program's own file.
    pub program: Option<PathBuf>,
}

impl Environment {
    /// Reads it.
    #[must_use]
    pub fn read() -> Self {
        let text = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            operation: text("OPERATION"),
            cluster: text("CLUSTER_NAME"),
            namespace: text("CLUSTER_NAMESPACE"),
            masters: text("MASTER_HOSTS"),
            nodes: text("NODE_HOSTS"),
            etcd: text("ETCD_HOSTS"),
            ignore: text("IGNORE_CHECKS"),
            without: text("WITHOUT"),
            traceparent: text("TRACEPARENT"),
            collector: text("OTEL_EXPORTER_OTLP_ENDPOINT"),
            in_a_pod: text("KUBERNETES_SERVICE_HOST").is_some(),
            temporary: env::temp_dir(),
            program: env::current_exe().ok(),
        }
    }
}

/// Everything that was said from outside.
#[derive(Debug, Clone)]
pub struct Settings {
    /// By flags.
    pub flags: RunArgs,
    /// By environment.
    pub environment: Environment,
}

impl Settings {
    /// Whether somebody counts on the state being kept in the meta cluster. Who runs the program by hand, outside of a
    /// Job, may do without.
    #[must_use]
    pub fn must_keep(&self) -> bool {
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
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
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
