//! The command lines of the program `kubeon`, all in one place. Secrets are named by their files, never written here.

use std::path::{Path, PathBuf};
use std::process::Command;

use kubeon_api::Operation;

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
        let inventory =
            || Some(Self::Inventory { hosts: file("hosts.yml")?, variables: file("group_vars.yml")? });
        cluster.or_else(inventory)
    }
}

/// What the command lines name.
#[derive(Debug, Clone)]
pub struct Kubeon {
    /// The program.
    pub program: PathBuf,
    /// Its state, in a folder of its own.
    pub home: PathBuf,
    /// The cluster.
    pub cluster: String,
    /// What is declared.
    pub declared: Declared,
    /// Where keys and passwords lie.
    pub auth: PathBuf,
    /// The account, when it is not root.
    pub username: Option<String>,
    /// Where bundles lie, when there are any.
    pub bundles: Option<PathBuf>,
}

impl Kubeon {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command.env("KUBEON_HOME", &self.home).env("KUBEON_CACHE", self.home.join("cache"));
        if let Some(bundles) = &self.bundles {
            command.env("KUBEON_BUNDLES", bundles);
        }
        command
    }

    /// Makes the cluster what is declared, with one line of JSON for each thing that happens. The program checks the
    /// hosts first. Who wrote the declaration has agreed that workers leave that are not in it any more.
    #[must_use]
    pub fn work(&self, operation: Operation) -> Command {
        let mut command = if operation == Operation::Terminating {
            self.command(&["destroy", &self.cluster])
        } else {
            self.declare(&["create"])
        };
        command.arg("--yes");
        self.log_in(&mut command);
        command.args(["--progress", "json", "--hold"]);
        command
    }

    /// Looks whether the hosts are fit; changes none.
    #[must_use]
    pub fn precheck(&self) -> Command {
        let mut command = self.declare(&["precheck"]);
        self.log_in(&mut command);
        command.args(["--progress", "json"]);
        command
    }

    /// Writes the cluster's state to standard output.
    #[must_use]
    pub fn export_state(&self) -> Command {
        self.command(&["state", "export", &self.cluster])
    }

    /// Reads the cluster's state from standard input.
    #[must_use]
    pub fn import_state(&self) -> Command {
        self.command(&["state", "import", &self.cluster])
    }

    /// Where the admin kubeconfig lies afterwards.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.join("conf/cluster").join(format!("{}.yaml", self.cluster))
    }

    fn declare(&self, words: &[&str]) -> Command {
        let mut command = self.command(words);
        match &self.declared {
            Declared::Cluster(file) => command.arg("-f").arg(file),
            Declared::Inventory { hosts, variables } => {
                command.arg(&self.cluster).arg("--inventory").arg(hosts).arg("--vars").arg(variables)
            }
        };
        command
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
