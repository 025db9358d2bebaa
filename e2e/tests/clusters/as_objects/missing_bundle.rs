//! A declared cluster with a version that has no bundle in the meta cluster: the object and its operation name
//! the missing image within the time limit. No host was changed, so the deletion needs no Job.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::declared_cluster::declared;
use super::deletion::{Deletion, check_nothing_left};
use super::environment::MetaCluster;
use super::operation_results::check_reported_in_time;
use super::samples::OPERATIONS;
use super::{MINUTE, print_time};

const NAME: &str = "no-bundle";
/// A version in the catalogue. This meta cluster has no image of its bundle.
const OTHER_VERSION: &str = "v1.35.4";

/// Declares the cluster. No host has its address, and no host is contacted.
pub(crate) fn start(meta: &MetaCluster) -> Result<()> {
    let unused_address = format!("{}50", meta.lab.machine()?);
    meta.apply(&declared(NAME, OTHER_VERSION, &unused_address, &[]))
}

/// Checks the result.
pub(crate) fn check(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    let status = meta.eventually("the status reports the failure", MINUTE * 2, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed", "{status:#}");
        Ok(status)
    });
    let status = status.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    let image = format!("kubeon/kubeon-bundle:{OTHER_VERSION}");
    let names_image =
        |status: &Value| status["reason"].as_str().is_some_and(|reason| reason.contains(&image));
    let all = meta.get(&[OPERATIONS, "-l", &format!("clusterName={NAME}")])?;
    let operation = &all["items"][0];
    ensure!(names_image(&status) && names_image(&operation["status"]), "{image}: {status:#} {operation:#}");
    check_reported_in_time(operation)?;
    let message = Deletion::start(meta, NAME)?.finish(meta)?;
    let wanted = "nothing was ever written to its hosts: there is nothing to take down";
    ensure!(message == wanted, "{message}");
    check_nothing_left(meta, NAME, &[])?;
    print_time("a missing bundle", start);
    Ok(())
}
