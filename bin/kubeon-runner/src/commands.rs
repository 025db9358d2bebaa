//! The command lines of the program `kubeon`. They name secrets by their files and never contain them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use kubeon_api::{HostAddress, Operation, Version};
use serde_json::Value;

/// The inventory beside the declaration.
const HOSTS: &str = "hosts.yml";

/// The declaration of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Declared {
    /// A `KubernetesCluster` without secrets.
    Cluster(PathBuf),
    /// An inventory of kubespray with its variables.
    Inventory {
        /// `hosts.yml`.
        hosts: PathBuf,
        /// `group_vars.yml`.
        variables: PathBuf,
    },
}

impl Declared {
    /// Finds the declaration in a folder.
    #[must_use]
    pub(crate) fn find(folder: &Path) -> Option<Self> {
        let file = |name: &str| Some(folder.join(name)).filter(|file| file.is_file());
        let cluster = file("cluster.json").map(Self::Cluster);
        let inventory = || Some(Self::Inventory { hosts: file(HOSTS)?, variables: file("group_vars.yml")? });
        cluster.or_else(inventory)
    }
}

/// The program and its folders.
#[derive(Debug, Clone)]
pub(crate) struct KubeonProgram {
    /// The program.
    pub program: PathBuf,
    /// The folder of its state.
    pub home: PathBuf,
    /// The folder of bundles, when there is one.
    pub bundles: Option<PathBuf>,
    /// The ConfigMap of the host keys, for messages, when it is mounted.
    pub pinned_in: Option<String>,
}

impl KubeonProgram {
    /// Sets the program's environment.
    pub(crate) fn environment(&self, command: &mut Command) {
        command.env("KUBEON_HOME", &self.home).env("KUBEON_CACHE", self.home.join("cache"));
        if let Some(bundles) = &self.bundles {
            command.env("KUBEON_BUNDLES", bundles);
        }
        if let Some(place) = &self.pinned_in {
            command.env("KUBEON_PINNED_IN", place);
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        self.environment(&mut command);
        command
    }

    /// Writes a cluster's state to standard output.
    #[must_use]
    pub(crate) fn export_state(&self, cluster: &str) -> Command {
        self.command(&["state", "export", cluster])
    }

    /// Reads a cluster's state from standard input.
    #[must_use]
    pub(crate) fn import_state(&self, cluster: &str) -> Command {
        self.command(&["state", "import", cluster])
    }

    /// Prints a new kubeconfig that may only read nodes and health.
    #[must_use]
    pub(crate) fn observer(&self, cluster: &str) -> Command {
        self.command(&["certs", "observer", cluster])
    }

    /// Whether the program has a state of a cluster.
    #[must_use]
    pub(crate) fn knows(&self, cluster: &str) -> bool {
        self.home.join(format!("{cluster}.json")).is_file()
    }

    /// The program's state of a cluster, or null.
    #[must_use]
    pub(crate) fn state(&self, cluster: &str) -> Value {
        let text = std::fs::read(self.home.join(format!("{cluster}.json")));
        text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The clusters with a state, sorted by name.
    #[must_use]
    pub(crate) fn clusters(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.home).into_iter().flatten().flatten();
        let names =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()));
        let mut names: Vec<String> =
            names.filter(|name| name.parse::<kubeon_api::ClusterName>().is_ok()).collect();
        names.sort();
        names
    }

    /// The file of a cluster's pinned host keys.
    #[must_use]
    pub(crate) fn known_hosts(&self, cluster: &str) -> PathBuf {
        self.home.join("known_hosts").join(cluster)
    }

    /// The file of a cluster's admin kubeconfig.
    #[must_use]
    pub(crate) fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.home.join("conf/cluster").join(format!("{cluster}.yaml"))
    }
}

fn inventory(command: &mut Command, hosts: &Path, variables: &Path) {
    command.arg("--inventory").arg(hosts).arg("--vars").arg(variables);
}

/// The commands for one cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterCommands {
    /// The program.
    pub engine: KubeonProgram,
    /// The cluster.
    pub cluster: String,
    /// The declaration.
    pub declared: Declared,
    /// The declared version, if there is one.
    pub version: Option<Version>,
    /// The folder of keys and passwords.
    pub auth: PathBuf,
    /// The account, when it is not root.
    pub username: Option<String>,
    /// Whether a host without a known key is accepted.
    pub accepts_new_hosts: bool,
    /// Prechecks that may fail, separated by commas.
    pub ignore: Option<String>,
    /// Hosts to skip when they do not answer.
    pub skip_hosts: Vec<HostAddress>,
    /// How many versions follow in other operations, whose bundles are not here.
    pub later_versions: Option<u32>,
    /// The only plan that may be applied.
    pub approved_plan: Option<PathBuf>,
}

impl ClusterCommands {
    /// Makes the cluster equal to its declaration, with a line of JSON for each event. The program prechecks the hosts
    /// first. The declaration is the consent to remove workers that it does not list, and to take back a listed worker
    /// whose removal had started.
    #[must_use]
    pub(crate) fn work(&self, operation: Operation) -> Command {
        let upgrade = self.new_version(operation);
        let mut command = match (operation, upgrade) {
            (_, Some(version)) => self.upgrade(version),
            (Operation::Terminating, None) => self.destroy(),
            _ => self.declare(&with_scope("create", operation)),
        };
        if upgrade.is_none() {
            self.skip(&mut command);
            command.arg("--yes");
        }
        if let Some(plan) = &self.approved_plan {
            command.arg("--approved-plan").arg(plan);
        }
        self.log_in(&mut command);
        command.args(["--progress", "json", "--hold"]);
        command
    }

    /// Plans what [`Self::work`] would do, and writes the plan to a file.
    #[must_use]
    pub(crate) fn plan(&self, operation: Operation, file: &Path) -> Command {
        let mut command = match self.new_version(operation) {
            Some(version) => {
                let mut upgrade = self.upgrade(version);
                upgrade.arg("--dry-run");
                upgrade
            }
            None => {
                let mut plan = self.declare(&with_scope("plan", operation));
                self.skip(&mut plan);
                plan
            }
        };
        command.arg("--out").arg(file);
        self.log_in(&mut command);
        command.args(["--progress", "json"]);
        command
    }

    /// Prechecks the hosts and changes none.
    #[must_use]
    pub(crate) fn precheck(&self) -> Command {
        let mut command = self.declare(&["precheck"]);
        self.skip(&mut command);
        self.log_in(&mut command);
        command.args(["--progress", "json"]);
        command
    }

    /// Writes a snapshot of etcd below a prefix of an object store, and removes the oldest ones there.
    #[must_use]
    pub(crate) fn snapshot(&self, folder: &str, key: &Path, keep: Option<&str>) -> Command {
        let mut command = self.engine.command(&["etcd", "save", &self.cluster, folder]);
        command.arg("--key").arg(key);
        command.args(keep.iter().map(|keep| format!("--keep={keep}")));
        self.log_in(&mut command);
        command.args(["--progress", "json"]);
        command
    }

    /// Makes the declared cluster out of a snapshot in an object store.
    #[must_use]
    pub(crate) fn restore(&self, snapshot: &str, key: &Path) -> Command {
        let mut command = self.engine.command(&["etcd", "restore", &self.cluster, snapshot]);
        command.arg("--key").arg(key);
        if let Declared::Cluster(file) = &self.declared {
            command.arg("-f").arg(file);
        }
        if let Some(checks) = &self.ignore {
            command.arg(format!("--ignore={checks}"));
        }
        self.log_in(&mut command);
        command.args(["--progress", "json", "--hold"]);
        command
    }

    /// Returns the cluster to a snapshot of an older version: it is removed from its hosts and made again out of the snapshot. The
    /// state says how far an interrupted one came.
    #[must_use]
    pub(crate) fn rollback(&self, snapshot: &str, key: &Path) -> Command {
        let state = self.engine.state(&self.cluster);
        if !state["restoring"].is_null() {
            return self.restore(snapshot, key);
        }
        let declared = self.version.map(|version| version.to_string());
        if declared.is_some() && state["version"].as_str() == declared.as_deref() {
            return self.work(Operation::Repairing);
        }
        let mut command = self.engine.command(&["rollback", &self.cluster, "--snapshot", snapshot]);
        command.arg("--key").arg(key);
        if let Some(checks) = &self.ignore {
            command.arg(format!("--ignore={checks}"));
        }
        self.log_in(&mut command);
        command.args(["--yes", "--progress", "json", "--hold"]);
        command
    }

    /// Whether a return to a snapshot has begun: the cluster is being removed from its hosts, or made again out of the snapshot.
    #[must_use]
    pub(crate) fn is_being_replaced(&self) -> bool {
        let state = self.engine.state(&self.cluster);
        state["status"] == "destroying" || !state["restoring"].is_null()
    }

    /// Removes the cluster of the state, without the declaration. The inventory has the current logins of the hosts.
    fn destroy(&self) -> Command {
        let mut command = self.engine.command(&["destroy", &self.cluster]);
        match &self.declared {
            Declared::Cluster(file) => {
                let hosts = Some(file.with_file_name(HOSTS)).filter(|file| file.is_file());
                command.args(hosts.iter().flat_map(|file| [OsStr::new("--inventory"), file.as_os_str()]));
            }
            Declared::Inventory { hosts, variables } => inventory(&mut command, hosts, variables),
        }
        command
    }

    /// The version to which the operation changes the cluster; `None` when it changes something else, such as settings.
    pub(crate) fn new_version(&self, operation: Operation) -> Option<Version> {
        let declared = self.version.filter(|_| operation == Operation::Updating)?;
        let runs = self.engine.state(&self.cluster)["version"].as_str().map(str::to_owned);
        (runs != Some(declared.to_string())).then_some(declared)
    }

    /// Changes the cluster of the state to another version. The snapshot stays on a master, because this machine ends with
    /// the operation.
    fn upgrade(&self, version: Version) -> Command {
        let version = version.to_string();
        let mut command = self.engine.command(&["upgrade", &self.cluster, &version, "--snapshot-on-master"]);
        command.args(self.later_versions.iter().map(|count| format!("--later-versions={count}")));
        if let Some(checks) = &self.ignore {
            command.arg(format!("--ignore={checks}"));
        }
        command
    }

    fn declare(&self, words: &[&str]) -> Command {
        let mut command = self.engine.command(words);
        match &self.declared {
            Declared::Cluster(file) => {
                command.arg("-f").arg(file);
            }
            Declared::Inventory { hosts, variables } => {
                inventory(command.arg(&self.cluster), hosts, variables);
            }
        }
        if let Some(checks) = &self.ignore {
            command.arg(format!("--ignore={checks}"));
        }
        command
    }

    fn skip(&self, command: &mut Command) {
        command.args(self.skip_hosts.iter().map(|host| format!("--without={host}")));
    }

    /// Adds the credentials for the hosts: every mounted file.
    fn log_in(&self, command: &mut Command) {
        if self.accepts_new_hosts {
            command.arg("--accept-new");
        }
        if let Some(user) = &self.username {
            command.arg(format!("--default-user={user}"));
        }
        let mounted = |name: &str| Some(self.auth.join(name)).filter(|file| file.is_file());
        for (flag, name) in [("--default-pk-file", "ssh-privatekey"), ("--known-hosts", "known_hosts")] {
            if let Some(file) = mounted(name) {
                command.arg(flag).arg(file);
            }
        }
        let secrets = [
            ("--default-pk-password", "passphrase"),
            ("--default-passwd", "password"),
            ("--default-sudo-passwd", "sudo-password"),
        ];
        for (flag, name) in secrets {
            if let Some(file) = mounted(name) {
                let mut at = std::ffi::OsString::from("@");
                at.push(file);
                command.arg(flag).arg(at);
            }
        }
    }
}

/// `create` or `plan` of a declaration. When only workers join or leave, the others are not contacted.
fn with_scope(command: &'static str, operation: Operation) -> Vec<&'static str> {
    let scales = matches!(operation, Operation::ScalingUp | Operation::ScalingDown);
    let limit = scales.then_some("--only-changed-workers");
    [command, "--take-back"].into_iter().chain(limit).collect()
}
