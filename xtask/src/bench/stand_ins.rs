//! Stand-ins for hosts beyond the size of the lab: workers that a cluster declares and whose nodes it has, but no machines. Their
//! Leases are renewed as kubelets do, so that they stay Ready, unless the cluster waits for none. Flannel on every host has a route to
//! each. Nothing answers at their addresses.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::lab::BenchLab;

/// Kubelets renew their Lease this often.
const RENEWAL: Duration = Duration::from_secs(10);
/// A node whose Lease is older than this is not Ready any more.
const LEASE: Duration = Duration::from_secs(40);
/// What the names of all stand-ins begin with.
const NAME: &str = "stand-in-";
/// The time limit for routes to all stand-ins.
const ROUTES_TIMEOUT: Duration = Duration::from_secs(300);
/// A cluster has settled when no node changed for this long.
const SETTLED: Duration = Duration::from_secs(10);
/// The time limit for it: controllers change the nodes one after another.
const SETTLED_TIMEOUT: Duration = Duration::from_secs(300);

/// The stand-ins of a cluster. Dropping the value ends their renewal.
pub(super) struct StandIns {
    runtime: Runtime,
    client: Client,
    /// The file with the state of the cluster.
    state: PathBuf,
    count: Arc<AtomicU32>,
    renewals: Arc<Renewals>,
}

/// How the Leases of the stand-ins were renewed.
#[derive(Debug, Default)]
struct Renewals {
    made: AtomicU64,
    failed: AtomicU64,
    /// Attempts for a stand-in whose Lease had ended.
    late: AtomicU64,
    first_error: OnceLock<String>,
}

impl Renewals {
    /// Counts an attempt. `age` is the time since the Lease was renewed.
    fn count(&self, error: Option<String>, age: Duration) {
        let counter = if error.is_some() { &self.failed } else { &self.made };
        counter.fetch_add(1, Ordering::Relaxed);
        if age > LEASE {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(error) = error {
            self.first_error.get_or_init(|| error);
        }
    }

    /// The counts. An error if a stand-in was not Ready for a time: the cluster did not have the nodes that were measured.
    fn summary(&self) -> Result<String> {
        let [made, failed, late] =
            [&self.made, &self.failed, &self.late].map(|counter| counter.load(Ordering::Relaxed));
        let first = self.first_error.get().map(|error| format!("; the first: {error}")).unwrap_or_default();
        let text = format!("Leases of the stand-ins: {made} renewals, {failed} failed{first}");
        if late > 0 {
            bail!("{text}; {late} came after more than {} s, so nodes were not Ready", LEASE.as_secs());
        }
        Ok(text)
    }
}

impl StandIns {
    /// No stand-ins yet in a cluster whose files are in the folder. `renewed` says whether their Leases are.
    pub(super) fn of(home: &Path, cluster: &str, renewed: bool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let kubeconfig = Kubeconfig::read_from(home.join(format!("conf/cluster/{cluster}.yaml")))?;
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        let count = Arc::new(AtomicU32::new(0));
        let renewals = Arc::new(Renewals::default());
        if renewed {
            runtime.spawn(renew(leases(&client), Arc::clone(&count), Arc::clone(&renewals)));
        }
        Ok(Self { runtime, client, state: home.join(format!("{cluster}.json")), count, renewals })
    }

    /// How many renewals were made and failed.
    ///
    /// # Errors
    /// When a stand-in was not renewed in time, so that the figures are not those of a cluster with all nodes.
    pub(super) fn renewals(&self) -> Result<String> {
        self.renewals.summary()
    }

    /// Adds stand-ins until there are `count`. No command may change the cluster meanwhile. The routes are awaited on `host`, and then
    /// the end of what controllers do about new nodes.
    pub(super) fn reach(&self, count: u32, lab: &BenchLab, host: &str) -> Result<()> {
        let before = self.count.load(Ordering::Relaxed);
        if count <= before {
            return Ok(());
        }
        self.declare(before, count)?;
        self.runtime.block_on(async {
            for number in before..count {
                create(&self.client, number).await.with_context(|| format!("creating {}", name(number)))?;
            }
            anyhow::Ok(())
        })?;
        self.count.store(count, Ordering::Relaxed);
        self.routes(lab, host, |routes| routes > count)
    }

    /// Removes stand-ins until there are `count`. Waits as [`Self::reach`] does.
    pub(super) fn reduce(&self, count: u32, lab: &BenchLab, host: &str) -> Result<()> {
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        let removed: Vec<String> = (count..before).map(name).collect();
        change_workers(&self.state, |workers| {
            workers.retain(|worker| {
                !worker["name"].as_str().is_some_and(|name| removed.iter().any(|other| other == name))
            });
        })?;
        self.runtime.block_on(async {
            for name in &removed {
                delete(&self.client, name).await.with_context(|| format!("deleting {name}"))?;
            }
            anyhow::Ok(())
        })?;
        // One route more: that to the pods of the master.
        self.routes(lab, host, |routes| routes <= count + 1)
    }

    /// Waits until the number of routes of the host to pods of others is right, and then until the controllers are done.
    fn routes(&self, lab: &BenchLab, host: &str, right: impl Fn(u32) -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let routes = lab.on(host, "ip -4 route show dev flannel.1 | wc -l")?;
            if right(routes.trim().parse()?) {
                return self.runtime.block_on(settled(&self.client));
            }
            if begin.elapsed() > ROUTES_TIMEOUT {
                let count = self.count.load(Ordering::Relaxed);
                bail!("{host} has {} routes to pods for {count} stand-ins", routes.trim());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Declares the stand-ins from `before` on as workers of the cluster.
    fn declare(&self, before: u32, count: u32) -> Result<()> {
        let worker = |number| json!({ "address": address(number), "name": name(number), "labels": {} });
        change_workers(&self.state, |workers| workers.extend((before..count).map(worker)))
    }
}

/// Declares no stand-ins any more, so that the cluster can be destroyed.
pub(super) fn undeclare(home: &Path, cluster: &str) -> Result<()> {
    let state = home.join(format!("{cluster}.json"));
    change_workers(&state, |workers| {
        workers.retain(|worker| !worker["name"].as_str().is_some_and(|name| name.starts_with(NAME)));
    })
}

/// Changes the workers in the state of a cluster, while no command runs.
fn change_workers(state: &Path, change: impl FnOnce(&mut Vec<Value>)) -> Result<()> {
    let text = std::fs::read(state).with_context(|| format!("reading {}", state.display()))?;
    let mut document: Value = serde_json::from_slice(&text)?;
    change(document["spec"]["workers"].as_array_mut().context("the state has no workers")?);
    std::fs::write(state, serde_json::to_string_pretty(&document)?)?;
    Ok(())
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-node-lease")
}

/// The renewal of one stand-in.
struct RenewedLease {
    /// When it was renewed last.
    at: Instant,
    /// As the API server answered then.
    lease: Option<Lease>,
}

impl RenewedLease {
    fn new() -> Self {
        Self { at: Instant::now(), lease: None }
    }

    /// Replaces the Lease, as a kubelet does: that takes less of the processors than a patch.
    async fn renew(&mut self, leases: &Api<Lease>, number: u32) -> kube::Result<()> {
        let name = name(number);
        let mut lease = match self.lease.take() {
            Some(lease) => lease,
            None => leases.get(&name).await?,
        };
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
        self.lease = Some(leases.replace(&name, &PostParams::default(), &lease).await?);
        Ok(())
    }
}

/// The Leases are renewed one after another, each once in [`RENEWAL`]. A renewal that fails is repeated with the next round, long
/// before the node counts as lost.
async fn renew(leases: Api<Lease>, count: Arc<AtomicU32>, renewals: Arc<Renewals>) {
    let mut renewed = Vec::new();
    loop {
        let all = count.load(Ordering::Relaxed);
        let new = (0..all).skip(renewed.len());
        renewed.extend(new.map(|_| RenewedLease::new()));
        for (number, last) in (0..all).zip(&mut renewed) {
            // Those that were removed meanwhile have no Lease.
            if number >= count.load(Ordering::Relaxed) {
                break;
            }
            let done = last.renew(&leases, number).await;
            let age = last.at.elapsed();
            if done.is_ok() {
                last.at = Instant::now();
            }
            renewals.count(done.err().map(|error| format!("{}: {error}", name(number))), age);
            tokio::time::sleep(RENEWAL / all).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until no node has changed for [`SETTLED`].
async fn settled(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let begin = Instant::now();
    let (mut versions, mut since) = (Vec::new(), begin);
    while since.elapsed() < SETTLED {
        if begin.elapsed() > SETTLED_TIMEOUT {
            bail!("the nodes still change after {} s", SETTLED_TIMEOUT.as_secs());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let listed = nodes.list_metadata(&ListParams::default()).await?;
        let found: Vec<_> = listed.items.into_iter().map(|node| node.metadata.resource_version).collect();
        if found != versions {
            (versions, since) = (found, Instant::now());
        }
    }
    Ok(())
}

async fn create(client: &Client, number: u32) -> Result<()> {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": { "name": name(number) },
        "spec": {
            "holderIdentity": name(number),
            "leaseDurationSeconds": LEASE.as_secs(),
            "renewTime": MicroTime(Timestamp::now()),
        },
    }))?;
    leases(client).create(&PostParams::default(), &lease).await?;
    let node: Node = serde_json::from_value(node(number))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    Ok(())
}

async fn delete(client: &Client, name: &str) -> kube::Result<()> {
    Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await?;
    leases(client).delete(name, &DeleteParams::default()).await.map(drop)
}

/// A node as its kubelet and its flannel describe it.
fn node(number: u32) -> Value {
    let (name, address, now) = (name(number), address(number), Timestamp::now());
    let vtep = format!("0a:00:{}", address.octets().iter().map(hex).collect::<Vec<_>>().join(":"));
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a stand-in",
        "lastHeartbeatTime": now.to_string(), "lastTransitionTime": now.to_string(),
    });
    // Flannel reads the range of a node when it first sees the node: it must have one. The controller manager starts with the
    // lowest ones.
    let pods = format!("10.{}.{}.0/24", 110 + number / 256, number % 256);
    let size = json!({ "cpu": "2", "memory": "4Gi", "pods": "110" });
    json!({
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
            "annotations": {
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/backend-data": json!({ "VNI": 1, "VtepMAC": vtep }).to_string(),
                "flannel.alpha.coreos.com/kube-subnet-manager": "true",
                "flannel.alpha.coreos.com/public-ip": address,
            },
        },
        // No pod may run here.
        "spec": { "podCIDR": pods, "podCIDRs": [pods], "taints": [{ "key": "kubeon-bench", "value": "stand-in", "effect": "NoSchedule" }] },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": address },
                { "type": "Hostname", "address": name },
            ],
            "capacity": size, "allocatable": size,
            "conditions": [ready],
        },
    })
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

fn name(number: u32) -> String {
    format!("{NAME}{number:04}")
}

/// An address of the network for benchmarks (RFC 2544), where no machine is.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 1, 0)) + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_differ_in_name_address_and_link() {
        let [one, other] = [0, 300].map(node);
        assert_eq!(one["metadata"]["name"], "stand-in-0000");
        assert_eq!(one["status"]["addresses"][0]["address"], "198.18.1.0");
        assert_eq!(other["status"]["addresses"][0]["address"], "198.18.2.44");
        assert_eq!(other["spec"]["podCIDR"], "10.111.44.0/24");
        let link =
            |node: &Value| node["metadata"]["annotations"]["flannel.alpha.coreos.com/backend-data"].clone();
        assert_eq!(link(&one), json!({ "VNI": 1, "VtepMAC": "0a:00:c6:12:01:00" }).to_string());
        assert_ne!(link(&one), link(&other));
    }

    #[test]
    fn a_failed_renewal_is_counted_and_a_late_one_ends_the_benchmark() {
        let renewals = Renewals::default();
        renewals.count(None, RENEWAL);
        renewals.count(Some("stand-in-0003: timeout".to_owned()), RENEWAL);
        renewals.count(Some("another".to_owned()), RENEWAL);
        let text = "Leases of the stand-ins: 1 renewals, 2 failed; the first: stand-in-0003: timeout";
        assert_eq!(renewals.summary().unwrap(), text);
        renewals.count(None, LEASE + RENEWAL);
        assert!(
            renewals
                .summary()
                .unwrap_err()
                .to_string()
                .ends_with("1 came after more than 40 s, so nodes were not Ready")
        );
    }
}
