//! The parts of a change. They may come onto the hosts before the rest of it, which any later run does.

use kubeon_api::Version;
use kubeon_plan::Plan;
use kubeon_reconcile::Reconciled;
use kubeon_wire::Op;
use tokio_util::sync::CancellationToken;

use super::PreparedChange;
use crate::error::EngineError;
use crate::remedy::EngineRemedy;
use crate::verified_parts::VerifiedParts;

/// How putting the parts of a change onto the hosts ended.
pub enum PartsOutcome {
    /// Every host that answers has its parts.
    Put(PutParts),
    /// Some steps were not completed.
    Incomplete(Box<Reconciled>),
}

/// The parts that the hosts of a change have now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutParts {
    /// Their version.
    pub version: Version,
    /// How many parts came onto hosts.
    pub parts: usize,
    /// Their bytes, compressed.
    pub bytes: u64,
    /// How many hosts have all their parts.
    pub hosts: usize,
    /// Names of the hosts that were skipped or unreachable.
    pub unreachable: Vec<String>,
}

impl PreparedChange<'_> {
    /// Puts the parts of the change onto the hosts and stores the request.
    ///
    /// # Errors
    /// Refuses another version, whose change begins with more than its parts. Else as for [`PreparedChange::make`].
    pub async fn put_parts(mut self, cancellation: &CancellationToken) -> Result<PartsOutcome, EngineError> {
        self.refuse_other_version()?;
        let planned = self.observe(cancellation).await?;
        self.persist(planned.plan())?;
        let put = self.put(planned.plan());
        let reconciled = self.apply(planned, cancellation).await?;
        if !reconciled.outcome.is_complete() {
            return Ok(PartsOutcome::Incomplete(Box::new(reconciled)));
        }
        Ok(PartsOutcome::Put(put))
    }

    /// Finds a damaged part before the first effect on a host.
    pub(super) fn check_parts(&self, plan: &Plan) -> Result<(), EngineError> {
        let digests = plan.steps.iter().filter_map(|step| match &step.op {
            Op::Part { digest, .. } => Some(digest.clone()),
            _ => None,
        });
        let digests = digests.collect();
        let cache = self.engine.environment.cache.as_deref();
        let mut verified = VerifiedParts::read(cache);
        for bundle in self.bundles.all() {
            verified.verify(bundle, &digests).map_err(|error| {
                EngineError::refused(error.to_string()).remedy(EngineRemedy::Bundle(error.remedy()))
            })?;
        }
        verified.write(cache);
        Ok(())
    }

    fn refuse_other_version(&self) -> Result<(), EngineError> {
        if !self.begins_upgrade() {
            return Ok(());
        }
        let (cluster, version) = (self.state.name.clone(), self.wanted_version());
        let error = EngineError::refused(format!("{cluster}: {version} is another version than it has"));
        let why =
            "an upgrade begins with checks and a snapshot, then it puts the parts onto the hosts itself";
        Err(error.row("cause", why).remedy(EngineRemedy::Upgrade { cluster, version }))
    }

    fn put(&self, plan: &Plan) -> PutParts {
        let sizes = plan.steps.iter().filter_map(|step| match &step.op {
            Op::Part { size, .. } => Some(*size),
            _ => None,
        });
        let unreachable = self.unreachable(plan);
        PutParts {
            version: self.wanted_version(),
            parts: sizes.clone().count(),
            bytes: sizes.sum(),
            hosts: self.intent.spec.hosts().count() - unreachable.len(),
            unreachable,
        }
    }
}
