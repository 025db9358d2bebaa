//! Checks the hosts of a target and writes nothing.

use kubeon_plan::precheck::{ConnectionTarget, precheck};
use kubeon_plan::{Intent, Snapshot};
use kubeon_ports::Clock as _;
use kubeon_wire::PrecheckReport;

use crate::checked::PrecheckProbe;
use crate::cluster_target::ClusterTarget;
use crate::contact::{Contact, ContactPurpose};
use crate::engine::{Engine, MachineClock};
use crate::error::EngineError;
use crate::host_keys::HostKeyOptions;

async fn observe(intent: &Intent, contact: &Contact, further: &[ConnectionTarget]) -> Snapshot {
    let probe = PrecheckProbe::new(intent, &contact.hosts, further);
    let hosts = intent.spec.hosts().map(|host| host.address);
    kubeon_observe::snapshot(&probe, hosts, MachineClock.now_seconds()).await
}

/// Observes and checks the hosts of a target. Each host also tries to connect to the `further` targets.
///
/// # Errors
/// When keys cannot be read, or the user does not accept a key. A failed check is part of the report.
pub async fn check(
    engine: &Engine<'_>,
    target: &ClusterTarget,
    host_keys: &HostKeyOptions,
    further: &[ConnectionTarget],
) -> Result<PrecheckReport, EngineError> {
    target.warn(engine);
    // Without a bundle only the required disk space is unknown.
    let parts = target.bundles(engine).map_or_else(|_| Default::default(), |bundles| bundles.artifacts());
    let logins = engine.logins(&target.logins)?;
    let contact = engine.contact(&target.spec.name, logins, host_keys, ContactPurpose::Observe).await?;
    let mut intent = target.intent(parts);
    let mut snapshot = observe(&intent, &contact, further).await;
    let detected = intent.detect_internal_addresses(&snapshot);
    if !detected.is_empty() {
        // The hosts try to connect to each other at these addresses.
        intent.set_internal_addresses(&detected);
        snapshot = observe(&intent, &contact, further).await;
    }
    Ok(precheck(&intent, &snapshot))
}
