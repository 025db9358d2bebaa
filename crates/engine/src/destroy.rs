//! Removes a cluster from its hosts.
//!
//! ```text
//!   find ─► plan (a dry run)
//!        └► prepare: lock ─► confirm ─► contact      make: observe ─► persist ─► apply ─► forget, or another state
//! ```

use std::collections::BTreeMap;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_plan::{Artifacts, Intent, Plan, Snapshot};
use kubeon_reconcile::{Planned, Reconciled};
use kubeon_store::{ClusterLock, Status};
use tokio_util::sync::CancellationToken;

use crate::change::ChangeOptions;
use crate::cloud_routes;
use crate::cluster_request;
use crate::contact::{Contact, ContactPurpose};
use crate::engine::{self, Engine, StoredCluster, members};
use crate::error::{EngineError, note_text};
use crate::host_keys::HostKeyOptions;
use crate::hosts_file::HostsFile;
use crate::login_merge::{merge_remembered, refuse_unused_flags};
use crate::login_request::{HostLoginRequest, LoginRequests};
use crate::no_secrets::NoSecrets;
use crate::pre_apply_hook::PreApplyWait;
use crate::reboot::reboot;
use crate::remedy::EngineRemedy;
use crate::request_inventory::{InventoryFiles, merge_inventory_logins};
use crate::run::Run;
use crate::user_kubeconfig;

/// A request to destroy a cluster.
pub struct DestroyRequest<'a> {
    /// The cluster; `None`: the chosen cluster.
    pub name: Option<&'a str>,
    /// Addresses of hosts to skip.
    pub skip_hosts: &'a [String],
    /// How to log in, from flags.
    pub logins: LoginRequests,
    /// How to log in, from an inventory.
    pub inventory: InventoryFiles,
    /// Whether the hosts reboot afterwards.
    pub reboot: bool,
}

/// A cluster to destroy. Nothing was changed yet.
pub struct DestroyTarget {
    /// The stored state.
    pub state: StoredCluster,
    /// The input of the plan.
    pub intent: Intent,
    /// The hosts to contact: no skipped host, and no host at all if none was ever written to.
    hosts: Vec<HostAddress>,
    logins: BTreeMap<HostAddress, HostLoginRequest>,
    reboot: bool,
}

/// The result of destroying a cluster.
pub enum DestroyOutcome {
    /// The hosts are clean, and the state of the cluster was deleted or replaced.
    Destroyed {
        /// Number of contacted hosts.
        hosts: usize,
        /// The hosts that did not accept their reboot, with the cause.
        not_rebooted: Vec<(HostAddress, String)>,
    },
    /// Some steps were not completed.
    Incomplete(Box<Reconciled>),
}

/// A confirmed removal: the cluster is locked, no host was written to.
pub struct PreparedDestroy<'a> {
    engine: &'a Engine<'a>,
    lock: ClusterLock,
    state: StoredCluster,
    intent: Intent,
    hosts: Vec<HostAddress>,
    /// `None`: no host is contacted.
    contact: Option<Contact>,
    pre_apply_wait: PreApplyWait,
    reboot: bool,
}

impl DestroyTarget {
    /// Loads the cluster.
    ///
    /// # Errors
    /// Refuses an unknown cluster, skipped hosts that do not belong to it, and login flags that no host uses.
    pub fn find(engine: &Engine<'_>, request: &DestroyRequest<'_>) -> Result<Self, EngineError> {
        let state = engine.find(request.name)?;
        // A cluster whose version is no longer supported can be destroyed too.
        let (spec, _) = cluster_request::stored_spec(state.spec.clone(), &[state.spec.version])?;
        let skip_hosts = engine::skip_hosts(request.skip_hosts, &spec, &state)?;
        let intent = engine::intent(spec, &state, Artifacts::default(), skip_hosts);
        let hosts = contacted(&intent);
        let logins = if hosts.is_empty() {
            BTreeMap::new()
        } else {
            login_requests(request, &state, &intent, &hosts)?
        };
        Ok(Self { state, intent, hosts, logins, reboot: request.reboot })
    }

    /// Makes the plan without writing anything.
    ///
    /// # Errors
    /// Refuses when no plan can be made.
    pub async fn plan(&self, engine: &Engine<'_>, host_keys: &HostKeyOptions) -> Result<Plan, EngineError> {
        if self.hosts.is_empty() {
            return plan_without_hosts(engine, &self.intent);
        }
        let logins = engine.logins(&self.logins)?;
        let contact = engine.contact(&self.state.name, logins, host_keys, ContactPurpose::Observe).await?;
        let cancellation = CancellationToken::new();
        let run = run(engine, &contact, self.hosts.clone(), &cancellation, PreApplyWait::Nothing);
        Ok(run.observe(&|snapshot| kubeon_plan::destroy(&self.intent, snapshot)).await?.plan().clone())
    }

    /// Locks the cluster, asks for confirmation, and prepares the connection to the hosts.
    ///
    /// # Errors
    /// Refuses when another command holds the lock, or the user does not confirm.
    pub async fn prepare<'a>(
        self,
        engine: &'a Engine<'a>,
        options: &ChangeOptions<'_>,
    ) -> Result<PreparedDestroy<'a>, EngineError> {
        let logins = engine.logins(&self.logins)?;
        if self.hosts.is_empty() {
            plan_without_hosts(engine, &self.intent)?;
        }
        // The lock comes before the question: the state that the user confirms must not change meanwhile.
        let lock = engine.lock(&self.state, true, options.command)?;
        self.confirm(engine, options)?;
        let Self { state, intent, hosts, reboot, .. } = self;
        let contact = if hosts.is_empty() {
            None
        } else {
            Some(engine.contact(&state.name, logins, options.host_keys, ContactPurpose::Change).await?)
        };
        Ok(PreparedDestroy {
            engine,
            lock,
            state,
            intent,
            hosts,
            contact,
            pre_apply_wait: options.pre_apply_wait.clone(),
            reboot,
        })
    }

    fn confirm(&self, engine: &Engine<'_>, options: &ChangeOptions<'_>) -> Result<(), EngineError> {
        if options.yes {
            return Ok(());
        }
        let cluster = &self.state.name;
        let contacted = members(&self.state.spec)
            .into_iter()
            .filter(|member| self.hosts.contains(&HostAddress::from(member.address)));
        let names: Vec<_> = contacted.map(|member| member.name).collect();
        let question = if names.is_empty() {
            format!("Delete the state of {cluster} without contacting a host?")
        } else {
            let reboot = if self.reboot { " Then reboot them?" } else { "" };
            format!("Destroy {cluster} and delete all its data on {}?{reboot}", names.join(", "))
        };
        if engine.output.confirm(&question)? {
            return Ok(());
        }
        let error = EngineError::refused(format!("{cluster} was not destroyed: not confirmed"));
        Err(error.remedy(EngineRemedy::ConfirmDestroy { command: options.command, cluster: cluster.clone() }))
    }
}

impl PreparedDestroy<'_> {
    /// Removes the cluster from its hosts, then deletes its state on this machine.
    ///
    /// # Errors
    /// Refuses before the first effect on a host; fails when the state cannot be saved. A failure on a
    /// host is part of the outcome.
    pub async fn make(mut self, cancellation: &CancellationToken) -> Result<DestroyOutcome, EngineError> {
        let outcome = self.remove(cancellation).await?;
        if let DestroyOutcome::Destroyed { .. } = &outcome {
            forget(self.engine, &self.lock, &self.state.name)?;
        }
        Ok(outcome)
    }

    /// Removes the cluster from its hosts, then stores another state of it: the one from which it is made again. So at every moment
    /// this machine knows how to go on.
    ///
    /// # Errors
    /// As for [`Self::make`].
    pub async fn make_and_store(
        mut self,
        mut next: StoredCluster,
        cancellation: &CancellationToken,
    ) -> Result<DestroyOutcome, EngineError> {
        let outcome = self.remove(cancellation).await?;
        if let DestroyOutcome::Destroyed { .. } = &outcome {
            next.generation = next.generation.max(self.state.generation);
            self.engine.store.save(&self.lock, &mut next)?;
        }
        Ok(outcome)
    }

    /// Removes the cluster from its hosts.
    async fn remove(&mut self, cancellation: &CancellationToken) -> Result<DestroyOutcome, EngineError> {
        cloud_routes::remove_before_destroy(self.engine, &self.state).await?;
        let (mut hosts, mut not_rebooted) = (0, Vec::new());
        if let Some(contact) = self.contact.take() {
            let (count, reconciled) = self.clean(&contact, cancellation).await?;
            if let Some(reconciled) = reconciled {
                return Ok(DestroyOutcome::Incomplete(Box::new(reconciled)));
            }
            hosts = count;
            if self.reboot {
                not_rebooted = reboot(&contact.hosts, &self.hosts).await?;
            }
            contact.hosts.disconnect().await;
        }
        Ok(DestroyOutcome::Destroyed { hosts, not_rebooted })
    }

    /// Cleans the hosts. Returns the number of contacted hosts, and the run if it is not complete.
    async fn clean(
        &mut self,
        contact: &Contact,
        cancellation: &CancellationToken,
    ) -> Result<(usize, Option<Reconciled>), EngineError> {
        let run = run(self.engine, contact, self.hosts.clone(), cancellation, self.pre_apply_wait.clone());
        let intent = &self.intent;
        let plan = |snapshot: &Snapshot| kubeon_plan::destroy(intent, snapshot);
        let planned: Planned = run.observe(&plan).await?;
        let count = planned.plan().hosts.len();
        if planned.plan().steps.is_empty() {
            return Ok((count, None));
        }
        let (engine, lock, state) = (self.engine, &self.lock, &mut self.state);
        state.status = Status::Destroying;
        let save_generation = |plan: &Plan| {
            state.generation = state.generation.max(plan.generation);
            Ok(engine.store.save(lock, state)?)
        };
        let reconciled = run.act(planned, &plan, save_generation).await?;
        Ok((count, Some(reconciled).filter(|reconciled| !reconciled.outcome.is_complete())))
    }
}

fn run<'a>(
    engine: &Engine<'a>,
    contact: &'a Contact,
    hosts: Vec<HostAddress>,
    cancellation: &'a CancellationToken,
    pre_apply_wait: PreApplyWait,
) -> Run<'a> {
    Run {
        hosts,
        probe: &contact.hosts,
        act: &contact.hosts,
        secrets: &NoSecrets,
        blobs: &NoSecrets,
        forwarding: None,
        cancellation,
        output: engine.output,
        pre_apply_wait,
    }
}

fn contacted(intent: &Intent) -> Vec<HostAddress> {
    if intent.generation == 0 {
        return Vec::new();
    }
    intent.hosts().filter(|host| !intent.skip_hosts.contains(host)).collect()
}

fn login_requests(
    request: &DestroyRequest<'_>,
    state: &StoredCluster,
    intent: &Intent,
    hosts: &[HostAddress],
) -> Result<BTreeMap<HostAddress, HostLoginRequest>, EngineError> {
    let (flags, masters) = (&request.logins, &intent.spec.masters);
    let logins = merge_remembered(intent.hosts(), masters, flags, &state.logins);
    let mut logins = merge_inventory_logins(&request.inventory, flags, state, logins)?;
    // Skipped hosts count: skipping a host must not turn a flag into an error.
    refuse_unused_flags(flags, masters, &logins)?;
    logins.retain(|host, _| hosts.contains(host));
    Ok(logins)
}

/// The plan of a cluster without contacted hosts. Prints its notes.
fn plan_without_hosts(engine: &Engine<'_>, intent: &Intent) -> Result<Plan, EngineError> {
    let plan = kubeon_plan::destroy(intent, &Snapshot::default())?;
    plan.notes.iter().for_each(|note| engine.output.warn(&note_text(note)));
    Ok(plan)
}

/// Deletes the cluster from this machine: the link of `kubeon use` if it points to the cluster, the entry in
/// the hosts file, and the state.
fn forget(engine: &Engine<'_>, lock: &ClusterLock, name: &ClusterName) -> Result<(), EngineError> {
    if let Some(home) = &engine.environment.home {
        user_kubeconfig::unlink(home, &engine.store.kubeconfig_path(name))?;
    }
    if let Err(error) = HostsFile::of_this_machine().forget(name.as_str()) {
        engine.output.info(&format!("note: /etc/hosts still contains {name}: {error}"));
    }
    Ok(engine.store.remove(lock, name)?)
}
