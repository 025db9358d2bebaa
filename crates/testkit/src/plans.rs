//! Builders of plans, steps and clusters.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::{HostAddress, HostRole};
use kubeon_plan::{
    DesiredCluster, HostSpec, Intent, Observation, Plan, PlannedHost, Snapshot, StageName, Step, StepId,
    belongs_to_node, sim, validate,
};
use kubeon_wire::{Check, Content, Fence, File, Op, ResultState, SecretRef};

use crate::hosts::address;
use crate::text::{fingerprint, sha256_like};

const VERSION: &str = "v1.36.3";
const UID: &str = "uid-demo";

/// The stage of steps that a test creates.
const TEST_STAGE: StageName = StageName::new("verify");

/// Parses a step id. A text that is not a step id becomes the action of an id in the test stage.
#[must_use]
pub fn step_id(text: &str) -> StepId {
    let (what, host) = text.split_once('@').unwrap_or((text, "test"));
    text.parse().unwrap_or_else(|_| StepId::new(TEST_STAGE, what.to_owned(), &host.parse().unwrap()))
}

/// A step that by default waits for nothing and does nothing.
#[must_use]
pub fn step(id: &str, host: &str) -> StepBuilder {
    StepBuilder(Step {
        id: step_id(id),
        stage: TEST_STAGE,
        host: address(host),
        title: id.to_owned(),
        why: "the test needs it".to_owned(),
        needs: Vec::new(),
        digest: fingerprint(id),
        timeout_seconds: 60,
        tries: 1,
        journal: false,
        record_in: None,
        destructive: false,
        op: Op::Await { checks: Vec::new() },
    })
}

/// Builds one step.
#[derive(Debug, Clone)]
pub struct StepBuilder(Step);

impl StepBuilder {
    /// Adds steps that must be done before.
    #[must_use]
    pub fn needs<'a>(mut self, needs: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.needs.extend(needs.into_iter().map(step_id));
        self
    }

    /// Sets the maximum number of attempts.
    #[must_use]
    pub fn tries(mut self, tries: u8) -> Self {
        self.0.tries = tries;
        self
    }

    /// Sets the timeout in seconds.
    #[must_use]
    pub fn within(mut self, seconds: u32) -> Self {
        self.0.timeout_seconds = seconds;
        self
    }

    /// Writes a text file.
    #[must_use]
    pub fn writes(self, path: &str, text: &str) -> Self {
        self.file(path, 0o644, Content::Text(text.to_owned()))
    }

    /// Writes a secret file.
    #[must_use]
    pub fn writes_secret(self, path: &str, secret: SecretRef) -> Self {
        self.file(path, 0o600, Content::Secret(secret))
    }

    /// Unpacks the part with this name.
    #[must_use]
    pub fn unpacks(self, name: &str) -> Self {
        let digest = sha256_like(name).parse().unwrap();
        self.op(Op::Part {
            name: name.to_owned(),
            digest,
            size: 1 << 20,
            unpacked_size: 3 << 20,
            source: None,
        })
    }

    /// Waits for a path.
    #[must_use]
    pub fn waits_for(self, path: &str) -> Self {
        self.op(Op::Await { checks: vec![Check::Path { path: path.to_owned() }] })
    }

    /// Sets any operation. The journal records steps that change the host.
    #[must_use]
    pub fn op(mut self, op: Op) -> Self {
        self.0.journal = !matches!(op, Op::Await { .. } | Op::Reset { .. });
        self.0.digest = fingerprint(&serde_json::to_string(&op).unwrap());
        self.0.op = op;
        self
    }

    fn file(self, path: &str, mode: u32, content: Content) -> Self {
        let mut files = match &self.0.op {
            Op::Files { files } => files.clone(),
            _ => Vec::new(),
        };
        files.push(File { path: path.to_owned(), mode, content });
        self.op(Op::Files { files })
    }
}

impl From<StepBuilder> for Step {
    fn from(builder: StepBuilder) -> Self {
        builder.0
    }
}

/// A plan of the steps in this order, for cluster `demo` in generation 1.
#[must_use]
pub fn plan_of(steps: impl IntoIterator<Item = StepBuilder>) -> Plan {
    let steps: Vec<Step> = steps.into_iter().map(Step::from).collect();
    let hosts: BTreeMap<HostAddress, PlannedHost> =
        steps.iter().map(|step| (step.host, planned(step.host))).collect();
    Plan {
        cluster: "demo".parse().unwrap(),
        version: VERSION.parse().unwrap(),
        nodes_at: None,
        generation: 1,
        hosts,
        steps,
        continues: false,
        up_to_date: 0,
        facts: 0,
        awaits_network: false,
        notes: Vec::new(),
        unreachable: Vec::new(),
        waiting: Vec::new(),
        rolling: Vec::new(),
        quorum: None,
    }
}

/// The steps of a plan that are left, as a simple planner: a step is done if the journal contains it with the
/// same digest and it is up to date. The generation is one higher than the observed one.
#[must_use]
pub fn needed(mut plan: Plan, snapshot: &Snapshot) -> Plan {
    let all = plan.steps.len();
    plan.steps.retain(|step| {
        let facts = snapshot.hosts.get(&step.host).and_then(Observation::fresh);
        let journal = facts.map(|facts| facts.journal.as_slice()).unwrap_or_default();
        let id = step.id.to_string();
        !journal.iter().any(|entry| {
            entry.id == id && entry.digest == step.digest && entry.state == ResultState::UpToDate
        })
    });
    let left: BTreeSet<StepId> = plan.steps.iter().map(|step| step.id.clone()).collect();
    plan.steps.iter_mut().for_each(|step| step.needs.retain(|need| left.contains(need)));
    plan.up_to_date = all - plan.steps.len();
    let claims =
        snapshot.hosts.values().filter_map(Observation::fresh).filter_map(|facts| facts.claim.as_ref());
    plan.generation = claims.map(|claim| claim.generation).max().unwrap_or(0) + 1;
    plan.hosts.values_mut().for_each(|host| host.fence.generation = plan.generation);
    plan
}

fn planned(host: HostAddress) -> PlannedHost {
    let fence = Fence {
        cluster: "demo".parse().unwrap(),
        uid: UID.to_owned(),
        generation: 1,
        version: VERSION.parse().unwrap(),
        role: HostRole::Worker,
    };
    PlannedHost { name: format!("h{}", host.ip().octets()[3]).parse().unwrap(), fence }
}

/// The same intent with the programs of an older version on the nodes.
#[must_use]
pub fn with_nodes_at(intent: Intent, version: &str) -> Intent {
    let artifacts = intent.artifacts.with_nodes_of(&sim::artifacts(version));
    // The engine records the nodes' programs again before the first effect.
    let of_nodes = artifacts.parts.iter().filter(|(name, _)| belongs_to_node(name));
    let mut used = intent.bundle_in_use.clone();
    used.extend(of_nodes.map(|(name, part)| (name.clone(), part.digest.clone())));
    Intent { nodes_at: version.parse().ok(), artifacts, bundle_in_use: used, ..intent }
}

/// The example cluster, without hosts.
#[must_use]
pub fn cluster() -> ClusterBuilder {
    ClusterBuilder(sim::cluster(&[], &[]))
}

/// Builds one cluster.
#[derive(Debug, Clone)]
pub struct ClusterBuilder(DesiredCluster);

impl ClusterBuilder {
    /// Adds a master.
    #[must_use]
    pub fn master(mut self, at: &str) -> Self {
        self.0.masters.push(HostSpec::at(address(at)));
        self
    }

    /// Adds a worker.
    #[must_use]
    pub fn worker(mut self, at: &str) -> Self {
        self.0.workers.push(HostSpec::at(address(at)));
        self
    }

    /// Sets the Kubernetes version of the cluster and the bundle.
    #[must_use]
    pub fn version(self, version: &str) -> Self {
        self.with(|spec| spec.version = version.parse().unwrap())
    }

    /// Changes the specification.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut DesiredCluster)) -> Self {
        change(&mut self.0);
        self
    }

    /// The intent of a cluster whose control plane tries a version.
    #[must_use]
    pub fn trying(self, version: &str) -> Intent {
        let trial = version.parse().unwrap();
        let intent = self.intent();
        let artifacts = intent.artifacts.with_control_plane_of(&sim::artifacts(version));
        Intent { trial: Some(trial), artifacts, ..intent }
    }

    /// The intent of a cluster whose nodes have the programs of an older version.
    #[must_use]
    pub fn with_nodes_at(self, version: &str) -> Intent {
        with_nodes_at(self.intent(), version)
    }

    /// The intent, with generation 0: the worst case for the fence, because no generation was saved.
    #[must_use]
    pub fn intent(self) -> Intent {
        let version = self.0.version;
        let (spec, _notes) = validate(self.0, &[version]).expect("the test's cluster is valid");
        let artifacts = sim::artifacts(&version.to_string());
        // The engine records the bundle before the first effect of a change.
        let used = artifacts.parts.iter().map(|(name, part)| (name.clone(), part.digest.clone()));
        Intent { bundle_in_use: used.collect(), ..Intent::new(spec, UID, 0, artifacts) }
    }
}
