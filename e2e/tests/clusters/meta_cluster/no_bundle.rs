//! A declared cluster of a version that the meta cluster was given no bundle of: the image is named on the object and on
//! its operation, in time. Nothing was written to its hosts, so that it goes without a Job.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::declared_cluster::declared;
use super::ends::named_in_time;
use super::environment::MetaCluster;
use super::gone::{Deleted, nothing_is_left};
use super::seed::OPERATIONS;
use super::{MINUTE, told};

const NAME: &str = "early";
/// In the catalogue; its bundle is no image of this meta cluster.
const OTHER: &str = "v1.35.4";

/// Declares it, on a host that nobody comes to look at: no lab has one with this address.
pub(crate) fn begin(meta: &MetaCluster) -> Result<()> {
    let nobody = format!("{}50", meta.lab.machine()?);
    meta.apply(&declared(NAME, OTHER, &nobody, &[]))
}

/// What came of it.
pub(crate) fn is_named(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    let status = meta.eventually("the failure is told", MINUTE * 2, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed", "{status:#}");
        Ok(status)
    });
    let status = status.map_err(|error| error.context(meta.story("ecs", NAME)))?;
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
    told("a bundle that is not there", start);
    Ok(())
}
