//! The lab of one test: its hosts, and `kubeon` with its own home folder. Dropping the value removes the lab.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::machine_state::MachineState;
use crate::program::{Answer, eventually, folder, must, run};

/// The Kubernetes version of the tests.
pub const VERSION: &str = "v1.36.3";
/// The next minor version, to which tests upgrade.
pub const NEXT: &str = "v1.37.2";

/// A command that prints everything that a cluster may leave on a host: folders, programs, links, packet
/// rules. It prints nothing on a bare host.
const PRINT_LEFTOVERS: &str = "\
    ls -d /var/lib/kubeon /etc/kubernetes /var/lib/kubelet /var/lib/etcd /var/lib/containerd /var/lib/cni /etc/cni \
        /opt/cni /run/flannel /run/kubeon /var/log/pods /var/log/containers /var/log/kubernetes /etc/systemd/system/kube*.service /etc/systemd/system/containerd.service \
        /etc/systemd/system/etcd.service /etc/systemd/system/haproxy.service /etc/systemd/system/apiserver-*.service 2>/dev/null; \
    ps -eo comm= | grep -E 'kube|etcd|containerd|flanneld|haproxy'; \
    ip -o link | grep -E 'cni0|flannel|veth|kube-'; \
    nft list tables 2>/dev/null | grep -E 'kube-proxy|flannel|cni_hostport'; \
    for family in iptables ip6tables; do \
        $family-save 2>/dev/null | grep -E '^:(KUBE|FLANNEL|CNI)-' | sed \"s/^/$family /\"; \
    done; true";

/// Prints what a cluster changes outside of files: kernel parameters and tables of packet rules.
const PRINT_STATE: &str = "\
    for name in net.ipv4.ip_forward net.ipv4.conf.all.accept_redirects net.ipv4.conf.all.rp_filter \
        net.ipv4.conf.all.route_localnet net.core.somaxconn fs.inotify.max_user_instances \
        fs.inotify.max_user_watches vm.overcommit_memory kernel.panic kernel.panic_on_oops; do \
        echo \"$name = $(sysctl -n $name 2>/dev/null)\"; \
    done; nft list tables 2>/dev/null | sort";

/// The hosts of a lab and the home folder of `kubeon`.
pub struct TestLab {
    name: String,
    home: PathBuf,
    before: MachineState,
    manifests: AtomicUsize,
    /// Further variables of every command.
    variables: Vec<(&'static str, String)>,
    /// What [`PRINT_STATE`] printed on `h1`, `h2`, … after their first boot.
    original: Vec<String>,
    /// Whether all hosts have started.
    has_started: bool,
    /// Addresses of `h1`, `h2`, …
    pub addresses: Vec<String>,
}

/// Parameters of the kernel that clusters raise, and that belong to no network namespace.
const SHARED_PARAMETERS: [(&str, u64); 2] =
    [("fs/inotify/max_user_instances", 8192), ("fs/inotify/max_user_watches", 1_048_576)];

/// Lab hosts share the kernel of the machine: the end of one cluster would restore its parameters under the clusters of other
/// tests. With these values before the first cluster, nothing is restored.
fn raise_shared_parameters() -> Result<()> {
    for (name, wanted) in SHARED_PARAMETERS {
        let file = Path::new("/proc/sys").join(name);
        let now = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        if now.trim().parse::<u64>().is_ok_and(|now| now < wanted) {
            std::fs::write(&file, wanted.to_string())
                .with_context(|| format!("setting {}", file.display()))?;
        }
    }
    Ok(())
}

impl TestLab {
    /// Boots `hosts` hosts of the default kind.
    ///
    /// # Errors
    /// When the lab does not start.
    pub fn up(name: &str, hosts: usize) -> Result<Self> {
        Self::up_with(name, hosts, &[])
    }

    /// Boots `hosts` hosts with more arguments of `kubeon lab up`.
    ///
    /// # Errors
    /// When the lab does not start.
    pub fn up_with(name: &str, hosts: usize, options: &[&str]) -> Result<Self> {
        raise_shared_parameters()?;
        let home = std::env::temp_dir().join(format!("kubeon-e2e-{name}"));
        std::fs::create_dir_all(&home)?;
        let (before, manifests) = (MachineState::now()?, AtomicUsize::default());
        let (variables, original, addresses) = (Vec::new(), Vec::new(), Vec::new());
        let has_started = false;
        let mut lab = Self {
            name: name.to_owned(),
            home,
            before,
            manifests,
            variables,
            original,
            has_started,
            addresses,
        };
        // Removes leftovers of a killed test.
        lab.kubeon(&["lab", "down", "--lab", name])?;
        std::fs::remove_dir_all(&lab.home)?;
        std::fs::create_dir_all(&lab.home)?;
        lab.before = MachineState::now()?;
        lab.must(&[&["lab", "up", "--lab", name, "--hosts", &hosts.to_string()], options].concat())?;
        let listed = lab.must(&["lab", "ls", "--lab", name, "-o", "json"])?;
        let listed: serde_json::Value = serde_json::from_str(&listed).context("lab ls printed no JSON")?;
        lab.addresses = texts(&listed, "address");
        if lab.addresses.len() != hosts {
            bail!("lab ls printed {} hosts, not {hosts}: {listed}", lab.addresses.len());
        }
        lab.original =
            (1..=hosts).map(|host| lab.on(&format!("h{host}"), PRINT_STATE)).collect::<Result<_>>()?;
        lab.has_started = true;
        Ok(lab)
    }

    /// The name of the lab. Use it also as the name of the cluster: the machine's `/etc/hosts` contains the
    /// names of clusters, and other tests run at the same time.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `kubeon` and returns its result, also after a failure.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn kubeon(&self, arguments: &[&str]) -> Result<Answer> {
        self.kubeon_with(arguments, &[])
    }

    /// Runs `kubeon` with additional environment variables.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn kubeon_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Answer> {
        let own = self.environment();
        let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        run(folder().join("kubeon"), arguments, &[&own, environment].concat())
    }

    /// Gives every further command this variable.
    pub fn set_environment(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    /// The environment with a separate home folder, so that the user's `~/.kube/config` is not changed. The
    /// cache is the user's.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let home = std::env::var("HOME").unwrap_or_default();
        let cache = std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| format!("{home}/.cache"));
        let own = self.home.to_string_lossy().into_owned();
        let own = [("KUBEON_HOME", own.clone()), ("HOME", own), ("XDG_CACHE_HOME", cache)];
        own.into_iter().chain(self.variables.iter().cloned()).collect()
    }

    /// The private key for all hosts.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.home.join("lab").join(&self.name).join("id_ed25519")
    }

    /// The file with the password of all users on all hosts.
    #[must_use]
    pub fn password(&self) -> PathBuf {
        self.home.join("lab").join(&self.name).join("password")
    }

    /// A file in the home folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// The machine's link to the lab.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn link(&self) -> Result<String> {
        let links = crate::machine_state::links(&self.name, &self.home.to_string_lossy())?;
        links.into_iter().next().with_context(|| format!("the machine has no link to {}", self.name))
    }

    /// The machine's own address, as the lab's hosts see it.
    ///
    /// # Errors
    /// When the lab has no host.
    pub fn machine(&self) -> Result<String> {
        let first = self.addresses.first().and_then(|address| address.rsplit_once('.'));
        let net = first.context("the lab has no hosts")?.0;
        Ok(format!("{net}.2"))
    }

    /// Runs a shell command on a host, which must succeed; returns its standard output.
    ///
    /// # Errors
    /// When it fails; the error contains its output.
    pub fn on(&self, host: &str, command: &str) -> Result<String> {
        self.must(&["lab", "ssh", host, "--lab", &self.name, "--", command])
    }

    /// Runs `kubeon`, which must succeed.
    ///
    /// # Errors
    /// When it fails; the error contains its output.
    pub fn must(&self, arguments: &[&str]) -> Result<String> {
        let answer = self.kubeon(arguments)?;
        if answer.code == 0 {
            return Ok(answer.out);
        }
        bail!("kubeon {} ended with {}\n{}{}", arguments.join(" "), answer.code, answer.out, answer.err)
    }

    /// Starts `kubeon` in the background.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, arguments: &[&str]) -> Result<Child> {
        Ok(Command::new(folder().join("kubeon"))
            .args(arguments)
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?)
    }

    /// The arguments of `create NAME` with the first hosts as masters and the rest as workers.
    #[must_use]
    pub fn create<'a>(&'a self, name: &'a str, masters: usize) -> Vec<&'a str> {
        let mut arguments = vec!["create", name, VERSION];
        for (index, address) in self.addresses.iter().enumerate() {
            arguments.extend([if index < masters { "-m" } else { "-w" }, address]);
        }
        arguments
    }

    /// The addresses of the hosts in the network of the cluster, which differ from the login addresses behind NAT and with two
    /// network cards.
    ///
    /// # Errors
    /// When `lab ls` fails or prints no addresses.
    pub fn cluster_addresses(&self) -> Result<Vec<String>> {
        let listed = self.must(&["lab", "ls", "--lab", &self.name, "-o", "json"])?;
        let listed: serde_json::Value = serde_json::from_str(&listed).context("lab ls printed no JSON")?;
        Ok(texts(&listed, "clusterAddress"))
    }

    /// Runs the bundle's kubectl with the cluster's admin kubeconfig, which must succeed.
    ///
    /// # Errors
    /// When it fails; the error contains its output.
    pub fn kubectl(&self, cluster: &str, arguments: &[&str]) -> Result<String> {
        self.kubectl_with(&self.home.join(format!("conf/cluster/{cluster}.yaml")), arguments)
    }

    /// Runs the bundle's kubectl with this kubeconfig, which must succeed.
    ///
    /// # Errors
    /// When it fails; the error contains its output.
    pub fn kubectl_with(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        // It ends before it needs to collect garbage.
        let environment = [("KUBECONFIG", &*kubeconfig.to_string_lossy()), ("GOGC", "off")];
        must(self.home.join("bin/kubectl"), arguments, &environment)
    }

    /// Applies a manifest of the test's own. kubectl does not compare it with the schemas of the API server: an API server computes
    /// them at the first request, which takes longer than kubectl waits on an emulated processor.
    ///
    /// # Errors
    /// When it cannot be written or applied.
    pub fn apply(&self, cluster: &str, manifest: &serde_json::Value) -> Result<()> {
        self.apply_with(cluster, &manifest.to_string(), &["--validate=false"])
    }

    /// Applies a manifest as a user does.
    ///
    /// # Errors
    /// When it cannot be written or applied.
    pub fn apply_text(&self, cluster: &str, manifest: &str) -> Result<()> {
        self.apply_with(cluster, manifest, &[])
    }

    fn apply_with(&self, cluster: &str, manifest: &str, flags: &[&str]) -> Result<()> {
        // Threads of one test apply manifests at the same time.
        let number = self.manifests.fetch_add(1, Ordering::Relaxed);
        let file = self.home.join(format!("manifest-{number}.yaml"));
        std::fs::write(&file, manifest)?;
        self.kubectl(cluster, &[&["apply", "-f", &file.to_string_lossy()], flags].concat()).map(|_| ())
    }

    /// Checks that a host has no leftovers of a cluster, and that its kernel parameters and packet rules are as
    /// they were before.
    ///
    /// # Errors
    /// The leftovers.
    pub fn is_bare(&self, host: &str) -> Result<()> {
        let left = self.on(host, PRINT_LEFTOVERS)?;
        ensure!(left.trim().is_empty(), "left on {host}: {left}");
        let number: usize = host.trim_start_matches('h').parse()?;
        let (now, original) = (self.on(host, PRINT_STATE)?, &self.original[number - 1]);
        ensure!(now == *original, "not restored on {host}: {now}, before: {original}");
        Ok(())
    }

    /// Runs a lab command for a host: `kill`, `start`, `cut`, `heal`.
    ///
    /// # Errors
    /// When the command fails.
    pub fn host(&self, command: &str, host: &str) -> Result<()> {
        self.must(&["lab", command, host, "--lab", &self.name]).map(|_| ())
    }

    /// The steps of a plan.
    ///
    /// # Errors
    /// When `plan` fails.
    pub fn plan(&self, cluster: &str) -> Result<Vec<serde_json::Value>> {
        let text = self.must(&["plan", cluster, "-o", "json"])?;
        let plan: serde_json::Value = serde_json::from_str(&text)?;
        Ok(plan["steps"].as_array().context("the plan has no steps")?.clone())
    }

    /// Waits until the plan has no steps.
    ///
    /// # Errors
    /// When steps are left after `limit`.
    pub fn wait_up_to_date(&self, cluster: &str, limit: Duration) -> Result<()> {
        eventually("the plan has no steps", limit, || match self.plan(cluster)? {
            steps if steps.is_empty() => Ok(()),
            steps => bail!("the plan still has steps: {steps:?}"),
        })
    }

    /// Builds the image of `lab-client` and loads it on all hosts of the cluster.
    ///
    /// # Errors
    /// When it cannot be built or loaded.
    pub fn load_client(&self, cluster: &str) -> Result<()> {
        let archive = self.home.join("lab-client.tar");
        crate::image::write(&folder().join("lab-client"), &archive)?;
        self.must(&["image", "load", &archive.to_string_lossy(), cluster]).map(|_| ())
    }
}

impl TestLab {
    /// Removes the lab and checks that it left nothing on this machine.
    fn remove(&self) -> Result<()> {
        self.must(&["lab", "down", "--lab", &self.name])?;
        let left = self.before.left(&self.name, &self.home, &self.addresses)?;
        if !left.is_empty() {
            bail!("left on this machine:\n  {}", left.join("\n  "));
        }
        Ok(std::fs::remove_dir_all(&self.home)?)
    }
}

/// Every value of this field at any depth of the document, in order.
fn texts(document: &serde_json::Value, field: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect(document, field, &mut found);
    found
}

fn collect(value: &serde_json::Value, field: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            found.extend(map.get(field).and_then(|text| text.as_str()).map(str::to_owned));
            map.values().for_each(|value| collect(value, field, found));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| collect(value, field, found)),
        _ => {}
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        // A failed test keeps its lab if KUBEON_E2E_KEEP is set.
        if std::thread::panicking() && std::env::var_os("KUBEON_E2E_KEEP").is_some() {
            return;
        }
        let removed = self.remove();
        // The error of a lab that did not start matters more than what it left.
        if self.has_started && !std::thread::panicking() {
            assert!(removed.is_ok(), "lab down: {removed:?}");
        }
    }
}
