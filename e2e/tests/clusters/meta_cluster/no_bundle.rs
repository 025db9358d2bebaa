//! A declared cluster with a version without a bundle in the meta cluster: the object and its operation name
//! the image in time. No host was changed, so the deletion needs no Job.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::declared_cluster::declared;
use super::ends::named_in_time;
use super::environment::MetaCluster;
use super::gone::{Deleted, nothing_is_left};
use super::seed::OPERATIONS;
use super::{MINUTE, print_time};

const NAME: &str = "early";
/// In the catalogue; its bundle is no image of this meta cluster.
const OTHER: &str = "v1.35.4";

/// Declares it, on a host that nobody comes to look at: no lab has one with this address.
pub(crate) fn begin(meta: &MetaCluster) -> Result<()> {
    let unused_address = format!("{}50", meta.lab.machine()?);
    meta.apply(&declared(NAME, OTHER, &unused_address, &[]))
}

/// Checks the result.
pub(crate) fn is_named(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    let status = meta.eventually("the failure is told", MINUTE * 2, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed", "{status:#}");
        Ok(status)
    });
    let status = status.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    let image = format!("kubeon/kubeon-bundle:{OTHER}");
    let names = |status: &Value| status["reason"].as_str().is_some_and(|reason| reason.contains(&image));
    let all = meta.get(&[OPERATIONS, "-l", &format!("clusterName={NAME}")])?;
    let operation = &all["items"][0];
    ensure!(names(&status) && names(&operation["status"]), "{image}: {status:#} {operation:#}");
    named_in_time(operation)?;
    let said = Deleted::begin(meta, NAME)?.is_gone(meta)?;
    let wanted = "nothing was ever written to its hosts: there is nothing to take down";
    ensure!(said == wanted, "{said}");
    nothing_is_left(meta, NAME, &[])?;
    print_time("a bundle that is not there", start);
    Ok(())
}
