//! Removes a cluster from its hosts.
//!
//! ```text
//!   find ─► look (a dry run)
//!        └► prepare: lock ─► confirm ─► contact      make: observe ─► persist ─► apply ─► forget
//! ```

use std::collections::BTreeMap;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_plan::{Artifacts, Intent, Plan, Snapshot};
use kubeon_reconcile::{Planned, Reconciled};
use kubeon_store::{ClusterLock, Status};
use tokio_util::sync::CancellationToken;

use crate::change::ChangeOptions;
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
use crate::request_inventory::{InventoryFiles, merge_inventory_logins};
use crate::run::Run;
use crate::user_kubeconfig;

/// Which cluster is destroyed, and how to log in to its hosts.
pub struct DestroyRequest<'a> {
    /// The cluster; none: the chosen one.
    pub name: Option<&'a str>,
    /// Addresses of hosts that are not contacted.
    pub skip_hosts: &'a [String],
    /// How to log in, as flags say it.
    pub logins: LoginRequests,
    /// How to log in, as an inventory says it.
    pub inventory: InventoryFiles,
}

/// A cluster that is to be destroyed; nothing was changed yet.
pub struct DestroyTarget {
    /// Its state.
    pub state: StoredCluster,
    /// What the plan is made from.
    pub intent: Intent,
    /// The hosts that are contacted: not the skipped ones, and none when no host was ever written to.
    hosts: Vec<HostAddress>,
    logins: BTreeMap<HostAddress, HostLoginRequest>,
}

/// How destroying a cluster ended.
pub enum DestroyOutcome {
    /// The hosts are clean, and the cluster is forgotten.
    Gone {
        /// How many hosts were contacted.
        hosts: usize,
    },
    /// Some steps were not done.
    Incomplete(Box<Reconciled>),
}

/// A removal that was agreed to: the cluster is locked, no host was written to.
pub struct PreparedDestroy<'a> {
    engine: &'a Engine<'a>,
    lock: ClusterLock,
    state: StoredCluster,
    intent: Intent,
    hosts: Vec<HostAddress>,
    /// None: no host is contacted.
    contact: Option<Contact>,
    hold: PreApplyWait,
}

impl DestroyTarget {
    /// Loads the cluster.
    ///
    /// # Errors
    /// Refuses a cluster that is not known, skipped hosts that are not its own, and login flags that no host uses.
    pub fn find(engine: &Engine<'_>, request: &DestroyRequest<'_>) -> Result<Self, EngineError> {
        let state = engine.find(request.name)?;
        // A cluster of a version that is no longer supported can be destroyed, too.
        let (spec, _) = cluster_request::stored_spec(state.spec.clone(), &[state.spec.version])?;
        let skip_hosts = engine::skip_hosts(request.skip_hosts, &spec, &state)?;
        let intent = engine::intent(spec, &state, Artifacts::default(), skip_hosts);
        let hosts = contacted(&intent);
        let logins = if hosts.is_empty() {
            BTreeMap::new()
        } else {
            login_requests(request, &state, &intent, &hosts)?
        };
        Ok(Self { state, intent, hosts, logins })
    }

    /// What would be done; nothing is written.
    ///
    /// # Errors
    /// Refuses when no plan can be made.
    pub async fn look(&self, engine: &Engine<'_>, host_keys: &HostKeyOptions) -> Result<Plan, EngineError> {
        if self.hosts.is_empty() {
            return plan_without_hosts(engine, &self.intent);
        }
        let logins = engine.logins(&self.logins)?;
        let contact = engine.contact(&self.state.name, logins, host_keys, ContactPurpose::Look).await?;
        let cancellation = CancellationToken::new();
        let run = run(engine, &contact, self.hosts.clone(), &cancellation, PreApplyWait::Nothing);
        Ok(run.look(&|snapshot| kubeon_plan::destroy(&self.intent, snapshot)).await?.plan().clone())
    }

    /// Locks the cluster, asks, and gets ready to reach the hosts.
    ///
    /// # Errors
    /// Refuses when another command holds the lock, or the user does not agree.
    pub async fn prepare<'a>(
        self,
        engine: &'a Engine<'a>,
        options: &ChangeOptions<'_>,
    ) -> Result<PreparedDestroy<'a>, EngineError> {
        let logins = engine.logins(&self.logins)?;
        if self.hosts.is_empty() {
            plan_without_hosts(engine, &self.intent)?;
        }
        // Locked before the question: the answer is about the state that was read, which must not change meanwhile.
        let lock = engine.lock(&self.state, true, options.command)?;
        self.confirm(engine, options)?;
        let Self { state, intent, hosts, .. } = self;
        let contact = if hosts.is_empty() {
            None
        } else {
            Some(engine.contact(&state.name, logins, options.host_keys, ContactPurpose::Change).await?)
        };
        Ok(PreparedDestroy { engine, lock, state, intent, hosts, contact, hold: options.hold.clone() })
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
            format!("Forget {cluster}, and touch no host?")
        } else {
            format!("Destroy {cluster} with everything in it on {}?", names.join(", "))
        };
        if engine.output.confirm(&question)? {
            return Ok(());
        }
        let error = EngineError::refused(format!("{cluster} was not destroyed: nobody agreed"));
        Err(error.row("agree", format!("{} {cluster} --yes", options.command)))
    }
}

impl PreparedDestroy<'_> {
    /// Removes everything of the cluster from its hosts, then forgets it here.
    ///
    /// # Errors
    /// Refuses before the first effect on a host; fails when the state cannot be saved. What failed on a host is in
    /// the outcome.
    pub async fn make(mut self, cancellation: &CancellationToken) -> Result<DestroyOutcome, EngineError> {
        let hosts = match self.contact.take() {
            None => 0,
            Some(contact) => match self.clean(&contact, cancellation).await? {
                (count, None) => count,
                (_, Some(reconciled)) => return Ok(DestroyOutcome::Incomplete(Box::new(reconciled))),
            },
        };
        forget(self.engine, &self.lock, &self.state.name)?;
        Ok(DestroyOutcome::Gone { hosts })
    }

    /// How many hosts were contacted, and the run if it is not complete.
    async fn clean(
        &mut self,
        contact: &Contact,
        cancellation: &CancellationToken,
    ) -> Result<(usize, Option<Reconciled>), EngineError> {
        let run = run(self.engine, contact, self.hosts.clone(), cancellation, self.hold.clone());
        let intent = &self.intent;
        let plan = |snapshot: &Snapshot| kubeon_plan::destroy(intent, snapshot);
        let planned: Planned = run.look(&plan).await?;
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
        contact.hosts.disconnect().await;
        Ok((count, Some(reconciled).filter(|reconciled| !reconciled.outcome.is_complete())))
    }
}

fn run<'a>(
    engine: &Engine<'a>,
    contact: &'a Contact,
    hosts: Vec<HostAddress>,
    cancellation: &'a CancellationToken,
    hold: PreApplyWait,
) -> Run<'a> {
    Run {
        hosts,
        probe: &contact.hosts,
        act: &contact.hosts,
        secrets: &NoSecrets,
        blobs: &NoSecrets,
        cancellation,
        output: engine.output,
        hold,
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
    // Skipped hosts count: leaving one more host out must not make a flag an error.
    refuse_unused_flags(flags, masters, &logins)?;
    logins.retain(|host, _| hosts.contains(host));
    Ok(logins)
}

/// The plan of a cluster of which no host is contacted. Its notes are shown.
fn plan_without_hosts(engine: &Engine<'_>, intent: &Intent) -> Result<Plan, EngineError> {
    let plan = kubeon_plan::destroy(intent, &Snapshot::default())?;
    plan.notes.iter().for_each(|note| engine.output.warn(&note_text(note)));
    Ok(plan)
}

/// Forgets the cluster on this machine: the link of `use` where it points to it, the hosts file, the state.
fn forget(engine: &Engine<'_>, lock: &ClusterLock, name: &ClusterName) -> Result<(), EngineError> {
    if let Some(home) = &engine.environment.home {
        user_kubeconfig::unlink(home, &engine.store.kubeconfig_path(name))?;
    }
    if let Err(error) = HostsFile::of_this_machine().forget(name.as_str()) {
        engine.output.say(&format!("note: /etc/hosts still names {name}: {error}"));
    }
    Ok(engine.store.remove(lock, name)?)
}
