//! Changes a cluster after its target was loaded.
//!
//! ```text
//!   prepare: lock ─► confirm ─► contact      make: observe ─► persist ─► apply ─► finish
//! ```

pub mod parts;

use std::path::PathBuf;

use kubeon_api::{HostAddress, Version};
use kubeon_cloud::RoutesChange;
use kubeon_plan::{DesiredCluster, HostSpec, Intent, Plan, Snapshot};
use kubeon_ports::ForwardingIdentities;
use kubeon_reconcile::{Planned, Reconciled};
use kubeon_store::{ClusterLock, Status};
use tokio_util::sync::CancellationToken;

use crate::admin_kubeconfig;
use crate::approved_plan::ApprovedPlan;
use crate::artifacts::programs_in_use;
use crate::change_bundles::{ChangeBlobs, ChangeBundles};
use crate::checked::{self, PrecheckProbe};
use crate::cloud_routes;
use crate::cluster_request::stored_spec;
use crate::cluster_target::{ClusterTarget, joining};
use crate::contact::{Contact, ContactPurpose};
use crate::engine::{self, Engine, StoredCluster};
use crate::error::EngineError;
use crate::host_keys::HostKeyOptions;
use crate::known_masters;
use crate::left_hosts;
use crate::no_secrets::NoSecrets;
use crate::planned_names::with_planned_names;
use crate::pre_apply_hook::PreApplyWait;
use crate::remedy::EngineRemedy;
use crate::restored_snapshot;
use crate::run::{Run, plan_progress};
use crate::run_identities::RunIdentities;
use crate::version_wait::{VersionWait, refuse_beginning};
use crate::way_back::way_back;

/// Options of a change.
pub struct ChangeOptions<'a> {
    /// The command that holds the lock, as the user typed it.
    pub command: &'static str,
    /// Which host keys are accepted.
    pub host_keys: &'a HostKeyOptions,
    /// The condition to wait for before the first effect on a host.
    pub pre_apply_wait: PreApplyWait,
    /// Whether hosts may be removed without confirmation.
    pub yes: bool,
    /// The only plan that may be applied.
    pub approved: Option<&'a ApprovedPlan>,
}

/// How a change ended.
pub enum ChangeOutcome {
    /// The cluster is up to date.
    Ready(Box<ReadyCluster>),
    /// Some steps were not completed.
    Incomplete(Box<Reconciled>),
}

/// A cluster that is up to date.
pub struct ReadyCluster {
    /// Its specification.
    pub spec: DesiredCluster,
    /// Whether any step was applied.
    pub changed: bool,
    /// Number of nodes that were neither skipped nor unreachable.
    pub nodes: usize,
    /// Names of the nodes that were skipped or unreachable.
    pub unreachable: Vec<String>,
    /// Names of the hosts that were removed.
    pub left: Vec<String>,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The routes of the cloud provider to its pods, if it has any.
    pub routes: Option<Result<RoutesChange, EngineError>>,
    /// The version of an upgrade that is not complete: this change of hosts did not go on with it.
    pub open_upgrade: Option<Version>,
    /// Whether the owner must install the network of the pods: nodes are not Ready before.
    pub awaits_network: bool,
}

/// A confirmed change: the cluster is locked, no host was written to.
pub struct PreparedChange<'a> {
    engine: &'a Engine<'a>,
    bundles: ChangeBundles,
    contact: Contact,
    lock: ClusterLock,
    state: StoredCluster,
    /// Whether the state was stored before this change.
    known: bool,
    intent: Intent,
    pre_apply_wait: PreApplyWait,
    /// The only plan that may be applied.
    approved: Option<ApprovedPlan>,
    /// Whether the change goes on with an upgrade that is not complete.
    continues_upgrade: bool,
}

/// Finds keys and bundle, locks the cluster, asks for confirmation, and prepares the connection to the hosts.
///
/// # Errors
/// Refuses when the approved plan is about another cluster, keys or bundle are missing, another command holds the lock, or the
/// user does not confirm.
pub async fn prepare<'a>(
    engine: &'a Engine<'a>,
    mut target: ClusterTarget,
    options: &ChangeOptions<'_>,
) -> Result<PreparedChange<'a>, EngineError> {
    if let Some(approved) = options.approved {
        approved.identify(&mut target)?;
    }
    // Fail early: without the keys no change is possible.
    if target.state.may_be_on_hosts() {
        engine.keys(&target.state)?;
    }
    let bundles = target.bundles(engine)?;
    target.warn(engine);
    // The lock comes before the question: the state that the user confirms must not change meanwhile.
    let lock = engine.lock(&target.state, target.known, options.command)?;
    confirm(engine, &target, options)?;
    let logins = engine.logins(&target.logins)?;
    let contact =
        engine.contact(&target.spec.name, logins, options.host_keys, ContactPurpose::Change).await?;
    let later_artifacts = bundles.later_artifacts();
    let intent = Intent { later_artifacts, ..target.intent(bundles.artifacts()) };
    let ClusterTarget { known, state, continues_upgrade, .. } = target;
    Ok(PreparedChange {
        engine,
        bundles,
        contact,
        lock,
        state,
        known,
        intent,
        pre_apply_wait: options.pre_apply_wait.clone(),
        approved: options.approved.cloned(),
        continues_upgrade,
    })
}

/// Stores the request and contacts no host.
///
/// # Errors
/// As for [`prepare`].
pub fn store_request(
    engine: &Engine<'_>,
    target: ClusterTarget,
    options: &ChangeOptions<'_>,
) -> Result<StoredCluster, EngineError> {
    target.warn(engine);
    let lock = engine.lock(&target.state, target.known, options.command)?;
    confirm(engine, &target, options)?;
    let mut state = target.state;
    engine::set_spec(&mut state, (*target.spec).clone());
    state.logins = engine.logins(&target.logins)?.remembered;
    engine.store.save(&lock, &mut state)?;
    Ok(state)
}

/// Asks for confirmation before hosts are removed.
fn confirm(
    engine: &Engine<'_>,
    target: &ClusterTarget,
    options: &ChangeOptions<'_>,
) -> Result<(), EngineError> {
    if options.yes || target.newly_leaving.is_empty() {
        return Ok(());
    }
    let (cluster, names) = (&target.spec.name, target.newly_leaving.join(", "));
    if engine
        .output
        .confirm(&format!("Remove {names} from {cluster} and delete the cluster's files on them?"))?
    {
        return Ok(());
    }
    let error = EngineError::refused(format!("{names} would leave {cluster}: not confirmed"));
    Err(error.remedy(EngineRemedy::ConfirmRemoval { command: options.command }))
}

impl PreparedChange<'_> {
    /// Executes the change: observe, persist, apply, finish.
    ///
    /// # Errors
    /// Refuses before the first effect on a host; fails when the state cannot be saved, and when a change of version waits for a
    /// master or a host of etcd. A failure on a host is part of the outcome.
    pub async fn make(mut self, cancellation: &CancellationToken) -> Result<ChangeOutcome, EngineError> {
        if self.intent.trial.is_some() {
            let planned = self.observe(cancellation).await?;
            let tried = self.apply_all(planned, cancellation).await?;
            if !tried.outcome.is_complete() {
                return Ok(ChangeOutcome::Incomplete(Box::new(tried)));
            }
            if !self.continues_upgrade {
                return self.finish_hosts(&tried.plan).await;
            }
            self.require_every_member(&tried.plan)?;
            self.take_tried_version()?;
        }
        let planned = self.observe(cancellation).await?;
        if self.is_up_to_date(planned.plan()) {
            self.save_logins(planned.plan())?;
            let ready = self.finish(false, planned.plan()).await?;
            return Ok(ChangeOutcome::Ready(Box::new(ready)));
        }
        let reconciled = self.apply_all(planned, cancellation).await?;
        if !reconciled.outcome.is_complete() {
            return Ok(ChangeOutcome::Incomplete(Box::new(reconciled)));
        }
        let waits = match self.state.status {
            Status::Upgrading => VersionWait::of(&reconciled.plan, self.wanted_version()).is_some(),
            // A master that does not answer has the control plane of the version already.
            Status::ChangingNodes => !reconciled.plan.waiting.is_empty(),
            _ => false,
        };
        if waits && !self.continues_upgrade {
            return self.finish_hosts(&reconciled.plan).await;
        }
        if waits {
            self.require_every_member(&reconciled.plan)?;
        }
        Ok(ChangeOutcome::Ready(Box::new(self.finish(true, &reconciled.plan).await?)))
    }

    /// Applies the plan, then what waited for a lost member of etcd that the plan removed or for one that it added.
    async fn apply_all(
        &mut self,
        planned: Planned,
        cancellation: &CancellationToken,
    ) -> Result<Reconciled, EngineError> {
        if self.begins_upgrade() {
            refuse_beginning(planned.plan(), self.wanted_version())?;
        }
        self.persist(planned.plan())?;
        let reconciled = self.apply(planned, cancellation).await?;
        let changes_members = !self.intent.leaving.is_empty()
            || !self.intent.joining_masters.is_empty()
            || !self.intent.joining_etcd_hosts.is_empty();
        let waited = !reconciled.plan.waiting.is_empty() && changes_members;
        if !waited || !reconciled.outcome.is_complete() {
            return Ok(reconciled);
        }
        let planned = self.observe(cancellation).await?;
        self.persist(planned.plan())?;
        self.apply(planned, cancellation).await
    }

    /// The version to which the cluster changes, or its nodes alone.
    fn wanted_version(&self) -> Version {
        let of_nodes = self.intent.nodes_at.filter(|_| self.state.status == Status::ChangingNodes);
        of_nodes.or(self.intent.trial).unwrap_or(self.intent.spec.version)
    }

    /// Ends a change of version that a master or a host of etcd has not made. The hosts that came or went with it did so.
    fn require_every_member(&mut self, plan: &Plan) -> Result<(), EngineError> {
        let Some(wait) = VersionWait::of(plan, self.wanted_version()) else { return Ok(()) };
        left_hosts::forget(&mut self.state, &self.intent, &plan.unreachable);
        self.engine.store.save(&self.lock, &mut self.state)?;
        let can_go_back = way_back(self.state.clone()).is_ok();
        Err(wait.failure(can_go_back))
    }

    /// Ends a change of hosts while an upgrade, or a change of the version of the nodes, is not complete. That version is not taken.
    async fn finish_hosts(mut self, plan: &Plan) -> Result<ChangeOutcome, EngineError> {
        self.save_kubeconfig(true).await?;
        left_hosts::forget(&mut self.state, &self.intent, &plan.unreachable);
        self.engine.store.save(&self.lock, &mut self.state)?;
        let open_upgrade = Some(self.wanted_version());
        let ready = ReadyCluster { open_upgrade, ..self.ready(true, plan).await };
        Ok(ChangeOutcome::Ready(Box::new(ready)))
    }

    /// When every master runs the control plane of the tried version, the whole cluster takes it, and the change cannot be aborted
    /// any more.
    fn take_tried_version(&mut self) -> Result<(), EngineError> {
        let Some(version) = self.intent.trial.take() else { return Ok(()) };
        let name = &self.state.name;
        self.engine.output.info(&format!(
            "{name}: every master runs the control plane of {version}; the cluster changes to it now"
        ));
        self.bundles.end_trial();
        let spec = DesiredCluster { version, ..self.state.spec.clone() };
        self.intent.spec = stored_spec(spec.clone(), &self.engine.supported()?)?.0;
        (self.intent.artifacts, self.intent.other_artifacts) = self.bundles.artifacts();
        self.intent.later_artifacts = self.bundles.later_artifacts();
        self.intent.bundle_in_use.clear();
        self.intent.generation = self.state.generation;
        (self.state.trial, self.state.nodes_at, self.intent.nodes_at) = (None, None, None);
        self.state.bundle.clear();
        engine::set_spec(&mut self.state, spec);
        Ok(self.engine.store.save(&self.lock, &mut self.state)?)
    }

    fn run<'r>(&'r self, blobs: &'r ChangeBlobs<'r>, cancellation: &'r CancellationToken) -> Run<'r> {
        Run {
            hosts: self.intent.hosts().collect(),
            probe: &self.contact.hosts,
            act: &self.contact.hosts,
            secrets: &NoSecrets,
            blobs,
            forwarding: None,
            cancellation,
            output: self.engine.output,
            pre_apply_wait: self.pre_apply_wait.clone(),
        }
    }

    /// Observes and checks the hosts, and plans.
    async fn observe(&mut self, cancellation: &CancellationToken) -> Result<Planned, EngineError> {
        let mut intent = self.intent.clone();
        let restored = self.engine.store.restore_folder(&self.intent.spec.name);
        let blobs = ChangeBlobs { bundles: &self.bundles, restored: &restored };
        let run = self.run(&blobs, cancellation);
        let planned = checked::observe(&mut intent, &self.contact.hosts, &run).await?;
        self.intent = intent;
        // The plans that follow the approved one complete it.
        if let Some(approved) = self.approved.take() {
            approved.check(planned.plan())?;
        }
        Ok(planned)
    }

    /// Whether the request is the one that was stored.
    fn is_same_request(&self) -> bool {
        let settled = self.intent.leaving.is_empty()
            && self.intent.returning.is_empty()
            && self.intent.joining_masters.is_empty()
            && self.intent.joining_etcd_hosts.is_empty();
        self.known && self.state.spec == *self.intent.spec && settled
    }

    /// Whether this change is the first to another version.
    fn begins_upgrade(&self) -> bool {
        let other = self.state.version.is_some_and(|version| version != self.intent.spec.version);
        (other || self.intent.trial.is_some()) && self.state.status == Status::Running
    }

    fn is_up_to_date(&self, plan: &Plan) -> bool {
        plan.steps.is_empty() && self.is_same_request() && self.state.status == Status::Running
    }

    /// Whether the routes of a cloud provider or the addresses of hosts differ from the stored ones.
    fn differs_from_stored(&self) -> Result<bool, EngineError> {
        let stored = self.engine.load(&self.state.name)?;
        let other_routes =
            self.state.cloud_routes.is_some() && stored.cloud_routes != self.state.cloud_routes;
        Ok(other_routes || stored.spec != self.state.spec)
    }

    /// Stores logins, routes and addresses that differ from the remembered ones.
    fn save_logins(&mut self, plan: &Plan) -> Result<(), EngineError> {
        self.engine.output.progress(&plan_progress(plan));
        if self.state.logins != self.contact.logins.remembered || self.differs_from_stored()? {
            self.contact.pin(self.engine, &self.lock)?;
            self.state.logins = self.contact.logins.remembered.clone();
            self.engine.store.save(&self.lock, &mut self.state)?;
        }
        Ok(())
    }

    /// Stores the data that a later run needs to continue this run.
    fn persist(&mut self, plan: &Plan) -> Result<(), EngineError> {
        let continues =
            self.is_same_request() && !self.begins_upgrade() && self.state.status != Status::ChangingNodes;
        if continues && plan.up_to_date > 0 && !plan.steps.is_empty() {
            let (done, all) = (plan.up_to_date, plan.up_to_date + plan.steps.len());
            let name = &self.intent.spec.name;
            self.engine.output.info(&format!(
                "{name}  continuing: {done} of {all} steps are up to date (checked on the hosts)"
            ));
        }
        self.check_parts(plan)?;
        self.contact.pin(self.engine, &self.lock)?;
        if self.state.status == Status::Running {
            self.state.joining = joining(&self.intent.spec, &self.state);
        }
        // Parts alone are not in use: the run that starts them asks about another build.
        if self.intent.trial.is_none() && !self.intent.only_parts {
            self.state.bundle = programs_in_use(&self.intent, plan);
        }
        if self.begins_upgrade() {
            self.state.status = Status::Upgrading;
        }
        engine::set_spec(&mut self.state, with_planned_names(&self.intent.spec, plan));
        self.state.logins = self.contact.logins.remembered.clone();
        // The state of a new cluster comes before its keys. Otherwise the one with the generation, which comes before the first effect
        // on a host, does.
        if !self.state.may_be_on_hosts() {
            self.engine.store.save(&self.lock, &mut self.state)?;
        }
        Ok(())
    }

    /// Applies the plan. The generation of every plan is stored before it is applied.
    async fn apply(
        &mut self,
        planned: Planned,
        cancellation: &CancellationToken,
    ) -> Result<Reconciled, EngineError> {
        // Keys are created after the last check, so that a refused request leaves no keys behind.
        let keys = self.engine.keys(&self.state)?;
        let mut state = self.state.clone();
        state.encrypts_secrets = true;
        let intent = &self.intent;
        let plan = |snapshot: &Snapshot| kubeon_plan::plan(intent, snapshot);
        let mut save_generation = |plan: &Plan| {
            state.generation = state.generation.max(plan.generation);
            Ok(self.engine.store.save(&self.lock, &mut state)?)
        };
        let probe = PrecheckProbe::new(&self.intent, &self.contact.hosts, &[]);
        let restored = self.engine.store.restore_folder(&self.intent.spec.name);
        let blobs = ChangeBlobs { bundles: &self.bundles, restored: &restored };
        let identities = RunIdentities::of(&self.intent.spec)?;
        let forwarding: Option<&dyn ForwardingIdentities> = Some(&identities);
        let run = Run { secrets: &keys, probe: &probe, forwarding, ..self.run(&blobs, cancellation) };
        self.contact.spread_programs(&self.intent.spec, &planned);
        let reconciled = run.act(planned, &plan, &mut save_generation).await?;
        self.contact.hosts.disconnect().await;
        self.state = state;
        Ok(reconciled)
    }

    /// Stores a kubeconfig with the masters of the cluster.
    async fn save_kubeconfig(&self, changed: bool) -> Result<(), EngineError> {
        let text = admin_kubeconfig::new_text(self.engine, &self.state, changed).await?;
        if let Some(text) = text {
            self.engine.store.save_kubeconfig(&self.lock, &text)?;
        }
        Ok(())
    }

    /// Stores the kubeconfig and the result.
    async fn finish(&mut self, changed: bool, plan: &Plan) -> Result<ReadyCluster, EngineError> {
        let engine = self.engine;
        self.save_kubeconfig(changed).await?;
        if changed {
            known_masters::record(&mut self.state, &self.intent, &plan.unreachable);
            left_hosts::forget(&mut self.state, &self.intent, &plan.unreachable);
            self.state.status = Status::Running;
            let before = self.state.version.replace(self.intent.spec.version);
            if before != self.state.version {
                self.state.version_before = before;
            }
            let restored = self.state.restoring.take();
            engine.store.save(&self.lock, &mut self.state)?;
            if restored.is_some() {
                restored_snapshot::remove(engine, &self.intent.spec.name)?;
            }
        }
        Ok(self.ready(changed, plan).await)
    }

    /// The result.
    async fn ready(&self, changed: bool, plan: &Plan) -> ReadyCluster {
        let intent = &self.intent;
        let unreachable = self.unreachable(plan);
        ReadyCluster {
            spec: (*intent.spec).clone(),
            changed,
            nodes: intent.spec.hosts().count() - unreachable.len(),
            unreachable,
            left: intent.leaving.iter().map(node_name).collect(),
            kubeconfig: self.engine.store.kubeconfig_path(&intent.spec.name),
            routes: cloud_routes::follow(self.engine, &self.state, &self.contact.hosts).await,
            open_upgrade: None,
            awaits_network: plan.awaits_network,
        }
    }

    /// Names of the hosts of the cluster that were skipped or unreachable.
    fn unreachable(&self, plan: &Plan) -> Vec<String> {
        let is_silent = |address: HostAddress| {
            self.intent.skip_hosts.contains(&address)
                || plan.unreachable.iter().any(|host| host.address == address)
        };
        self.intent.spec.hosts().filter(|host| is_silent(host.address)).map(node_name).collect()
    }
}

/// The name of the host's node, or its address.
fn node_name(host: &HostSpec) -> String {
    host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string)
}
