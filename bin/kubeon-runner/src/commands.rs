//! The command lines of the program `kubeon`, all in one place. Secrets are named by their files, never written here.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use kubeon_api::{HostAddress, Operation};
use serde_json::Value;

/// The inventory beside what is declared.
const HOSTS: &str = "hosts.yml";

/// What is declared, and in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declared {
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
    /// What lies in the folder.
    #[must_use]
    pub fn find(folder: &Path) -> Option<Self> {
        let file = |name: &str| Some(folder.join(name)).filter(|file| file.is_file());
        let cluster = file("cluster.json").map(Self::Cluster);
        let inventory = || Some(Self::Inventory { hosts: file(HOSTS)?, variables: file("group_vars.yml")? });
        cluster.or_else(inventory)
    }
}

/// The program, and where it keeps and finds things.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The program.
    pub program: PathBuf,
    /// Its state, in a folder of its own.
    pub home: PathBuf,
    /// Where bundles lie, when there are any.
    pub bundles: Option<PathBuf>,
    /// What people call the place that the keys of the hosts come from, when it is not the state.
    pub pinned_in: Option<String>,
}

impl Engine {
    /// What the program's environment says of these.
    pub fn environment(&self, command: &mut Command) {
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
    pub fn export_state(&self, cluster: &str) -> Command {
        self.command(&["state", "export", cluster])
    }

    /// Reads a cluster's state from standard input.
    #[must_use]
    pub fn import_state(&self, cluster: &str) -> Command {
        self.command(&["state", "import", cluster])
    }

    /// Whether the program knows a cluster.
    #[must_use]
    pub fn knows(&self, cluster: &str) -> bool {
        self.home.join(format!("{cluster}.json")).is_file()
    }

    /// What the program remembers of a cluster, or null.
    #[must_use]
    pub fn state(&self, cluster: &str) -> Value {
        let text = std::fs::read(self.home.join(format!("{cluster}.json")));
        text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The clusters that the program knows, in order.
    #[must_use]
    pub fn clusters(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.home).into_iter().flatten().flatten();
        let names =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()));
        let mut names: Vec<String> =
            names.filter(|name| name.parse::<kubeon_api::ClusterName>().is_ok()).collect();
        names.sort();
        names
    }

    /// Where the keys of a cluster's hosts are pinned.
    #[must_use]
    pub fn known_hosts(&self, cluster: &str) -> PathBuf {
        self.home.join("known_hosts").join(cluster)
    }

    /// Where the admin kubeconfig of a cluster lies.
    #[must_use]
    pub fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.home.join("conf/cluster").join(format!("{cluster}.yaml"))
    }
}

fn inventory(command: &mut Command, hosts: &Path, variables: &Path) {
    command.arg("--inventory").arg(hosts).arg("--vars").arg(variables);
}

/// What the command lines name.
#[derive(Debug, Clone)]
pub struct Kubeon {
    /// The program.
    pub engine: Engine,
    /// The cluster.
    pub cluster: String,
    /// What is declared.
    pub declared: Declared,
    /// Where keys and passwords lie.
    pub auth: PathBuf,
    /// The account, when it is not root.
    pub username: Option<String>,
    /// Checks of the hosts that may fail, joined by commas.
    pub ignore: Option<String>,
    /// Hosts to do without where they do not answer.
    pub without: Vec<HostAddress>,
}

impl Kubeon {
    /// Makes the cluster what is declared, with one line of JSON for each thing that happens. The program checks the
    /// hosts first. Who wrote the declaration has agreed that workers leave that are not in it any more, and that those
    /// that are in it stay, however far they were on their way out.
    #[must_use]
    pub fn work(&self, operation: Operation) -> Command {
        let mut command = if operation == Operation::Terminating {
            self.destroy()
        } else {
            self.declare(&["create", "--take-back"])
        };
        self.leave_out(&mut command);
        command.arg("--yes");
        self.log_in(&mut command);
        command.args(["--progress", "json", "--hold"]);
        command
    }

    /// Looks whether the hosts are fit; changes none.
    #[must_use]
    pub fn precheck(&self) -> Command {
        let mut command = self.declare(&["precheck"]);
        self.leave_out(&mut command);
        self.log_in(&mut command);
        command.args(["--progress", "json"]);
        command
    }

    /// Takes away what the program remembers, which is told no declaration. How hosts are logged in to may have changed since:
    /// that stands in the inventory.
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

    fn leave_out(&self, command: &mut Command) {
        command.args(self.without.iter().map(|host| format!("--without={host}")));
    }

    /// How hosts are logged in to: whatever of it is mounted.
    fn log_in(&self, command: &mut Command) {
        command.arg("--accept-new");
        if let Some(user) = &self.username {
            command.arg(format!("--default-user={user}"));
        }
        let there = |name: &str| Some(self.auth.join(name)).filter(|file| file.is_file());
        for (flag, name) in [("--default-pk-file", "ssh-privatekey"), ("--known-hosts", "known_hosts")] {
            if let Some(file) = there(name) {
                command.arg(flag).arg(file);
            }
        }
        let secrets = [
            ("--default-pk-password", "passphrase"),
            ("--default-passwd", "password"),
            ("--default-sudo-passwd", "sudo-password"),
        ];
        for (flag, name) in secrets {
            if let Some(file) = there(name) {
                let mut at = std::ffi::OsString::from("@");
                at.push(file);
                command.arg(flag).arg(at);
            }
        }
    }
}
