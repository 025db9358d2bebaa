//! Reads a cluster on its first ready master: nodes, pods, container images and etcd.

use std::time::Duration;

use futures::future::join_all;
use kubeon_api::{HostAddress, Version};
use kubeon_link_host::{Command, CommandInput, Exit, SshHosts, Stream};
use kubeon_ports::ProbeHost as _;
use kubeon_wire::{CertificateExpiry, EtcdFact, Facts};
use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster_nodes::{ClusterNodes, NodeAccess, command_output, output_of};
use crate::contact::Contact;
use crate::engine::{Engine, StoredCluster, etcd_members, members};
use crate::error::EngineError;
use crate::remedy::EngineRemedy;
use crate::removed_apis::RemovedApi;
use crate::selector::Member;
use crate::snapshot_space;
use crate::stored_versions;

/// How often hosts are asked again of which some answer, but none is ready: a busy API server may be ready a moment later.
const MORE_LOOKS: usize = 2;
/// The pause before hosts are asked again.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// Time limit of a command on the master.
const TIMEOUT: Duration = Duration::from_secs(30);
/// kubectl on a master, with the kubeconfig of the administrator. It leaves no cache in the home folder of the host.
pub(crate) const KUBECTL: &str = "/var/lib/kubeon/current/kubectl/bin/kubectl --request-timeout=15s \
    --cache-dir=/dev/null --kubeconfig /etc/kubernetes/admin.conf";
const IMAGES: &str = r#"-o jsonpath='{range .items[*]}{"\n"}{.metadata.name}{":\t"}{range .spec.containers[*]}{.image}{", "}{end}{end}'"#;
const ETCDCTL: &str = "/var/lib/kubeon/current/etcd/bin/etcdctl --dial-timeout=5s --cacert=/etc/kubernetes/pki/etcd/ca.crt --cert=/etc/kubernetes/pki/etcd/healthcheck-client.crt \
    --key=/etc/kubernetes/pki/etcd/healthcheck-client.key";
/// The member of the master itself.
const OWN_MEMBER: &str = "--endpoints=https://127.0.0.1:2379";
/// The flags of etcdctl that a user may replace.
const ETCDCTL_DEFAULTS: [(&str, &str); 2] =
    [("--endpoints", "https://127.0.0.1:2379"), ("--command-timeout", "10s")];

/// The folder in which a master writes a snapshot before it is copied.
const STATE: &str = "/var/lib/kubeon";
/// Removes what snapshots left that were killed: none takes an hour.
const ABANDONED: &str =
    "find /var/lib/kubeon -maxdepth 1 -name 'snapshot.??????' -mmin +60 -exec rm -rf -- {} +";
/// The folder of snapshots on a master.
const SNAPSHOTS: &str = "/var/lib/kubeon/snapshots";
/// How many snapshots before upgrades a master keeps.
const KEPT_ON_MASTER: usize = 3;
/// The kinds of objects that people and programs declare.
const DECLARED_KINDS: &str = "namespaces,deployments,statefulsets,daemonsets,jobs,cronjobs,services,ingresses,configmaps,secrets,\
    persistentvolumeclaims,persistentvolumes,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,\
    poddisruptionbudgets,networkpolicies,storageclasses,customresourcedefinitions";

/// Time limit of etcdctl with arguments of a user.
const ETCDCTL_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit for a snapshot and its copy to this machine.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(1800);

/// The file on a master with the snapshot before the upgrade to a version.
#[must_use]
pub fn kept_snapshot(version: Version) -> String {
    format!("{SNAPSHOTS}/before-{version}.db")
}

/// A kind of objects to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedObjects {
    /// The nodes.
    Nodes,
    /// The pods of all namespaces.
    Pods,
}

impl ListedObjects {
    fn words(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods --all-namespaces",
        }
    }
}

/// The images of a pod's containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodImages {
    /// The name of the pod.
    pub pod: String,
    /// The images, in the order of the containers.
    pub images: Vec<String>,
}

/// What a host answered.
#[derive(Debug)]
pub(crate) struct ProbedHost {
    pub(crate) host: HostAddress,
    pub(crate) name: String,
    /// Its facts, or why they are unknown.
    pub(crate) facts: Result<Facts, String>,
}

/// A master whose API server is ready.
pub struct ReadyMaster {
    /// The name of the master.
    pub name: String,
    /// The facts of the master.
    pub facts: Facts,
    /// What it and the other candidates answered, in order.
    pub(crate) probed: Vec<ProbedHost>,
    host: HostAddress,
    contact: Contact,
}

/// Asks all hosts at once; the answers are in the order of the hosts.
async fn probe(hosts: &SshHosts, members: &[Member]) -> Vec<ProbedHost> {
    let probes = members.iter().map(|member| async {
        let host = HostAddress::from(member.address);
        let facts = hosts.facts(host).await.map_err(|failure| failure.cause);
        ProbedHost { host, name: member.name.clone(), facts }
    });
    join_all(probes).await
}

/// What the hosts answer, and which one is chosen. They are probed again, at most [`MORE_LOOKS`] times, while some answer, but none is
/// chosen.
async fn probe_until<T>(
    chosen: impl Fn(&[ProbedHost]) -> Option<T>,
    probe: impl AsyncFn() -> Vec<ProbedHost>,
) -> (Vec<ProbedHost>, Option<T>) {
    let mut probed = probe().await;
    let mut found = chosen(&probed);
    for _ in 0..MORE_LOOKS {
        if found.is_some() || probed.iter().all(|candidate| candidate.facts.is_err()) {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        probed = probe().await;
        found = chosen(&probed);
    }
    (probed, found)
}

impl ReadyMaster {
    /// The first master in order whose API server is ready. All masters are probed at once, and twice more, some seconds later, if
    /// some answer, but none is ready.
    ///
    /// # Errors
    /// When no API server is ready; the error names the cause for every master.
    pub async fn find(
        engine: &Engine<'_>,
        state: &StoredCluster,
        access: &NodeAccess,
    ) -> Result<Self, EngineError> {
        let is_ready =
            |_: &str, facts: &Facts| facts.cluster.as_ref().is_some_and(|cluster| cluster.api_ready);
        let masters = members(&state.spec).into_iter().filter(|member| member.role.is_master()).collect();
        Self::find_with(engine, state, access, masters, is_ready, "the API server is not ready").await
    }

    /// The first host in order whose etcd member serves, whether the API servers answer or not: a master, or a host of etcd alone.
    ///
    /// # Errors
    /// When no member serves; the error names the cause for every master.
    pub async fn find_member(
        engine: &Engine<'_>,
        state: &StoredCluster,
        access: &NodeAccess,
    ) -> Result<Self, EngineError> {
        let serves = |name: &str, facts: &Facts| {
            let etcd = facts.cluster.as_ref().map(|cluster| &cluster.etcd);
            matches!(etcd, Some(EtcdFact::Members(members)) if members.get(name) == Some(&Some(true)))
        };
        let hosts = etcd_members(&state.spec);
        Self::find_with(engine, state, access, hosts, serves, "its etcd member does not serve").await
    }

    async fn find_with(
        engine: &Engine<'_>,
        state: &StoredCluster,
        access: &NodeAccess,
        candidates: Vec<Member>,
        is_ready: impl Fn(&str, &Facts) -> bool,
        otherwise: &str,
    ) -> Result<Self, EngineError> {
        let role =
            if candidates.iter().all(|member| member.role.is_master()) { "master" } else { "host of etcd" };
        let ClusterNodes { contact, members, .. } =
            ClusterNodes::of(engine, state, candidates, access).await?;
        let chosen = |probed: &[ProbedHost]| {
            probed.iter().find_map(|candidate| {
                let facts = candidate.facts.as_ref().ok().filter(|facts| is_ready(&candidate.name, facts))?;
                Some((candidate.name.clone(), facts.clone(), candidate.host))
            })
        };
        let (probed, found) = probe_until(chosen, async || probe(&contact.hosts, &members).await).await;
        if let Some((name, facts, host)) = found {
            return Ok(Self { name, facts, probed, host, contact });
        }
        let mut error = EngineError::failed(format!("no {role} of {} answers", state.name));
        for candidate in probed {
            let why = candidate.facts.err().unwrap_or_else(|| otherwise.to_owned());
            error = error.row(&candidate.name, why);
        }
        let remedy = contact.remedy().unwrap_or_else(|| EngineRemedy::InspectMasters {
            cluster: state.name.clone(),
            static_pods: state.spec.runs_static_pods(),
        });
        Err(error.remedy(remedy))
    }

    /// The certificate that ends first, of the candidates that answered and of the nodes that they list.
    #[must_use]
    pub fn earliest_expiry(&self) -> Option<CertificateExpiry> {
        let answered = self.probed.iter().filter_map(|candidate| candidate.facts.as_ref().ok());
        answered.filter_map(Facts::earliest_expiry).min_by_key(|known| known.expires_at)
    }

    /// The objects as a table for people.
    ///
    /// # Errors
    /// When kubectl fails on the master.
    pub async fn table(&self, objects: ListedObjects) -> Result<String, EngineError> {
        self.run(&format!("{KUBECTL} get {} -o=wide", objects.words())).await
    }

    /// The names of the objects, one per line.
    ///
    /// # Errors
    /// When kubectl fails on the master.
    pub async fn names(&self, objects: ListedObjects) -> Result<String, EngineError> {
        self.run(&format!("{KUBECTL} get {} -o name", objects.words())).await
    }

    /// The objects as a JSON list.
    ///
    /// # Errors
    /// When kubectl fails on the master or does not print JSON.
    pub async fn items(&self, objects: ListedObjects) -> Result<Value, EngineError> {
        Ok(self.json(&format!("{KUBECTL} get {} -o=json", objects.words())).await?["items"].take())
    }

    /// The images of every pod.
    ///
    /// # Errors
    /// When kubectl fails on the master.
    pub async fn pod_images(&self) -> Result<Vec<PodImages>, EngineError> {
        let words = ListedObjects::Pods.words();
        Ok(pod_images(&self.run(&format!("{KUBECTL} get {words} {IMAGES}")).await?))
    }

    /// The version of etcdctl.
    ///
    /// # Errors
    /// When etcdctl fails on the master.
    pub async fn etcdctl_version(&self) -> Result<String, EngineError> {
        let text = self.run("/var/lib/kubeon/current/etcd/bin/etcdctl version").await?;
        let word = text.lines().find_map(|line| line.strip_prefix("etcdctl version:"));
        Ok(word.map_or_else(|| "unknown".to_owned(), |word| word.trim().to_owned()))
    }

    /// The members of etcd as a table for people.
    ///
    /// # Errors
    /// When etcdctl fails on the master.
    pub async fn etcd_members_table(&self) -> Result<String, EngineError> {
        self.run(&format!("{ETCDCTL} {OWN_MEMBER} --command-timeout=10s member list --write-out=table")).await
    }

    /// The members of etcd as a JSON list.
    ///
    /// # Errors
    /// When etcdctl fails on the master or does not print JSON.
    pub async fn etcd_members(&self) -> Result<Value, EngineError> {
        Ok(self
            .json(&format!("{ETCDCTL} {OWN_MEMBER} --command-timeout=10s member list --write-out=json"))
            .await?["members"]
            .take())
    }

    /// The metric of deprecated APIs that clients requested since the start of an API server, one line each, of all API servers
    /// that are ready.
    ///
    /// # Errors
    /// When kubectl fails on a master.
    pub(crate) async fn deprecated_requests(&self) -> Result<String, EngineError> {
        let metrics = format!("{KUBECTL} get --raw /metrics");
        let line = format!("{metrics} | grep '^apiserver_requested_deprecated_apis{{' || true");
        let is_ready = |facts: &Facts| facts.cluster.as_ref().is_some_and(|cluster| cluster.api_ready);
        let ready = self.probed.iter().filter(|master| master.facts.as_ref().is_ok_and(is_ready));
        let answers = join_all(ready.map(|master| self.run_on(master.host, &line))).await;
        Ok(answers.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// The objects of a resource, with who wrote them, as a JSON list; nothing if the API server does not serve this version of its
    /// API. They are read in the version that the API server prefers: it counts who requests another one.
    ///
    /// # Errors
    /// When kubectl fails on the master or does not print JSON.
    pub(crate) async fn objects_of(&self, api: &RemovedApi) -> Result<Value, EngineError> {
        let served = format!(
            "{KUBECTL} get --raw /apis/{} 2>/dev/null | grep -q '\"name\":\"{}\"'",
            api.api_version(),
            api.resource()
        );
        let get = format!("{KUBECTL} get {} --all-namespaces --show-managed-fields -o=json", api.of_group());
        let line = format!("if {served}; then {get}; else echo null; fi");
        let text = command_output(self.hosts(), self.host, &line, TIMEOUT).await;
        let text = text.map_err(|why| EngineError::failed(format!("kubectl on {}: {why}", self.host)))?;
        serde_json::from_str(&text)
            .map_err(|error| EngineError::failed(format!("{get} did not print JSON: {error}")))
    }

    /// The disruption budgets as a JSON list.
    ///
    /// # Errors
    /// When kubectl fails on the master.
    pub(crate) async fn disruption_budgets(&self) -> Result<Value, EngineError> {
        self.json(&format!("{KUBECTL} get poddisruptionbudgets --all-namespaces -o=json")).await
    }

    /// The definitions of custom resources, in the columns of [`stored_versions::COLUMNS`].
    ///
    /// # Errors
    /// When kubectl fails on the master.
    pub(crate) async fn custom_definitions(&self) -> Result<String, EngineError> {
        self.run(&format!("{KUBECTL} get customresourcedefinitions {}", stored_versions::COLUMNS)).await
    }

    /// The kind and the time of creation of every declared object, one line each.
    ///
    /// # Errors
    /// When kubectl fails on the master.
    pub(crate) async fn creation_times(&self) -> Result<String, EngineError> {
        let columns = "-o custom-columns=K:.kind,T:.metadata.creationTimestamp --no-headers";
        self.run(&format!("{KUBECTL} get {DECLARED_KINDS} --all-namespaces {columns}")).await
    }

    /// Applies objects, given as JSON, as the steps of kubeon do. Returns a line for each.
    ///
    /// # Errors
    /// When kubectl fails on the master.
    pub async fn apply(&self, objects: String, dry_run: bool) -> Result<String, EngineError> {
        let dry_run = if dry_run { " --dry-run=server" } else { "" };
        let line =
            format!("{KUBECTL} apply --server-side --force-conflicts --field-manager=kubeon{dry_run} -f -");
        let input = CommandInput::Bytes(objects.into_bytes());
        let command = Command { timeout: Some(TIMEOUT), input, ..Command::new(line) };
        let text = output_of(self.hosts(), self.host, command).await;
        text.map_err(|why| EngineError::failed(format!("kubectl on {}: {why}", self.host)))
    }

    /// Runs etcdctl with the certificates of the master, and passes its output to `on_output`.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn etcdctl(
        &self,
        arguments: &[String],
        on_output: &(dyn Fn(Stream, &[u8]) + Send + Sync),
    ) -> Result<Exit, EngineError> {
        let words = shlex::try_join(arguments.iter().map(String::as_str))
            .map_err(|error| EngineError::refused(format!("etcdctl cannot get these arguments: {error}")))?;
        let given = |flag: &str| arguments.iter().any(|argument| argument.starts_with(flag));
        let defaults = ETCDCTL_DEFAULTS.iter().filter(|(flag, _)| !given(flag));
        let defaults: String = defaults.map(|(flag, value)| format!(" {flag}={value}")).collect();
        let line = format!("{ETCDCTL}{defaults} {words}");
        let command = Command { timeout: Some(ETCDCTL_TIMEOUT), ..Command::new(line) };
        self.exec(command, on_output).await
    }

    /// The size of the database of this member, in bytes. A snapshot is as large.
    ///
    /// # Errors
    /// When the host does not tell it.
    pub(crate) async fn database_size(&self) -> Result<u64, EngineError> {
        let text = self.run(&format!("stat -c %s {}", snapshot_space::DATABASE)).await?;
        text.trim().parse::<u64>().map_err(|error| {
            EngineError::failed(format!("{} has no size of its etcd: {error}", self.name)).row("stat", text)
        })
    }

    /// Takes a snapshot of etcd and passes its bytes to `on_bytes`. On the master the file is removed, or kept as the one before
    /// the upgrade to a version.
    ///
    /// # Errors
    /// When the master has too little disk space, or etcdctl fails, with the end of its output.
    pub(crate) async fn stream_snapshot(
        &self,
        kept: Option<Version>,
        on_bytes: &(dyn Fn(&[u8]) + Send + Sync),
    ) -> Result<(), EngineError> {
        let keep = |version| {
            let place = kept_snapshot(version);
            let old = format!("ls -t {SNAPSHOTS}/before-*.db | tail -n +{}", KEPT_ON_MASTER + 1);
            format!(
                "; mkdir -p {SNAPSHOTS}; sync \"$folder/db\"; mv \"$folder/db\" {place}; {old} | xargs -r rm -f --"
            )
        };
        let line = format!(
            "set -e; umask 077; {ABANDONED}; {}; folder=$(mktemp -d {STATE}/snapshot.XXXXXX); \
             trap 'rm -rf \"$folder\"' EXIT; trap 'exit 1' HUP INT TERM; \
             {ETCDCTL} {OWN_MEMBER} --command-timeout=600s snapshot save \"$folder/db\" >&2; cat \"$folder/db\"{}",
            snapshot_space::on_member(STATE),
            kept.map(keep).unwrap_or_default()
        );
        let errors = Mutex::new(Vec::new());
        let on_output = |stream: Stream, bytes: &[u8]| match stream {
            Stream::Out => on_bytes(bytes),
            Stream::Err => errors.lock().extend_from_slice(bytes),
        };
        let command = Command { timeout: Some(SNAPSHOT_TIMEOUT), ..Command::new(line) };
        let exit = self.exec(command, &on_output).await?;
        if exit.success() {
            return Ok(());
        }
        let errors = errors.into_inner();
        let text = String::from_utf8_lossy(&errors);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error output");
        Err(EngineError::failed(format!("the snapshot on {} failed: {exit}", self.name)).row("cause", last))
    }

    async fn exec(
        &self,
        command: Command,
        on_output: &(dyn Fn(Stream, &[u8]) + Send + Sync),
    ) -> Result<Exit, EngineError> {
        let exit = self.hosts().exec(self.host, command, on_output).await;
        exit.map_err(|failure| EngineError::failed(format!("etcdctl on {}: {}", self.name, failure.cause)))
    }

    fn hosts(&self) -> &SshHosts {
        &self.contact.hosts
    }

    async fn run(&self, line: &str) -> Result<String, EngineError> {
        self.run_on(self.host, line).await
    }

    async fn run_on(&self, host: HostAddress, line: &str) -> Result<String, EngineError> {
        command_output(self.hosts(), host, line, TIMEOUT).await.map_err(|why| {
            let program = line.split(' ').next().unwrap_or(line);
            EngineError::failed(format!("{program} on {host}: {why}"))
        })
    }

    async fn json(&self, line: &str) -> Result<Value, EngineError> {
        let text = self.run(line).await?;
        serde_json::from_str(&text)
            .map_err(|error| EngineError::failed(format!("{line} did not print JSON: {error}")))
    }
}

/// Parses the output of [`IMAGES`]: a line `POD:<tab>IMAGE, IMAGE, ` for each pod.
fn pod_images(text: &str) -> Vec<PodImages> {
    let images = |line: &str| {
        let (pod, images) = line.split_once(":\t")?;
        let images = images.split(", ").filter(|image| !image.is_empty()).map(str::to_owned).collect();
        Some(PodImages { pod: pod.to_owned(), images })
    };
    text.lines().filter_map(images).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_images_of_every_pod() {
        let pod = |pod: &str, images: &[&str]| PodImages {
            pod: pod.to_owned(),
            images: images.iter().map(|&image| image.to_owned()).collect(),
        };
        let text = "\ncoredns-1:\tregistry.k8s.io/coredns:v1, \nweb:\ta:1, localhost:5000/b:2, ";
        assert_eq!(
            pod_images(text),
            [pod("coredns-1", &["registry.k8s.io/coredns:v1"]), pod("web", &["a:1", "localhost:5000/b:2"])]
        );
        assert!(pod_images("\n").is_empty());
    }

    /// What `probe_until` ends with if the hosts are ready as in `looks`, one after another; `None` stands for a host that does not
    /// answer. Returns the number of looks, and whether a host was chosen.
    async fn looks(looks: &[Option<bool>]) -> (usize, bool) {
        let made = std::cell::Cell::new(0);
        let ready = |probed: &[ProbedHost]| probed[0].facts.as_ref().ok()?.cluster.as_ref().map(|_| ());
        let (probed, chosen) = probe_until(ready, async || {
            let cluster = |ready: bool| ready.then(kubeon_wire::ClusterFacts::default);
            let facts = looks[made.get()]
                .map(|ready| Facts { cluster: cluster(ready), ..Facts::default() })
                .ok_or_else(|| "no answer".to_owned());
            made.set(made.get() + 1);
            vec![ProbedHost { host: "10.0.0.1".parse().unwrap(), name: "h1".to_owned(), facts }]
        })
        .await;
        assert_eq!(probed.len(), 1);
        (made.get(), chosen.is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn masters_that_answer_get_some_time_to_become_ready() {
        assert_eq!(looks(&[Some(true)]).await, (1, true), "a ready one is taken at once");
        assert_eq!(looks(&[Some(false), Some(false), Some(true)]).await, (3, true));
        assert_eq!(looks(&[Some(false); 3]).await, (3, false), "the looks have a bound");
        assert_eq!(looks(&[None]).await, (1, false), "nobody waits for masters that do not answer");
        assert_eq!(looks(&[Some(false), None]).await, (2, false));
    }
}
