//! What the tests of several modules share.

use kubeon_plan::sim::{artifacts, bare, cluster};
use kubeon_plan::{Intent, Observation, Plan, Snapshot, plan, validate};

/// A plan for one master and one worker, both bare.
pub(crate) fn planned() -> Plan {
    let spec = cluster(&["10.0.0.1"], &["10.0.0.2"]);
    let version = spec.version;
    let intent = Intent::new(validate(spec, &[version]).unwrap().0, "u", 0, artifacts("v1.36.3"));
    let hosts = [("10.0.0.1", "h1"), ("10.0.0.2", "h2")];
    let hosts = hosts.map(|(host, name)| (host.parse().unwrap(), Observation::Fresh(bare(name))));
    plan(&intent, &Snapshot { taken_at: 0, hosts: hosts.into() }).unwrap()
}
