//! The routes of a cloud provider follow the nodes, from their first request to the end of the cluster.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_envtest::{CloudRoute, FakeCloud};
use serde_json::Value;

const TABLE: &str = "rtb-e2e";

/// Asks for routes, which need keys; from now on all commands have them.
pub(super) fn begin(lab: &mut TestLab, cluster: &str) -> Result<FakeCloud> {
    let cloud = FakeCloud::start(&[TABLE])?;
    let none = lab.kubeon(&["cloud", "modify-router", cluster])?;
    ensure!(none.code == 0 && none.err.contains("has no routes"), "{none:?}");
    let url = cloud.url();
    let tables = ["--provider", "tencent", "--endpoint", "ap-e2e", "--router-table-id", TABLE, "--api", &url];
    let modify = [&["cloud", "modify-router", cluster, "-o", "json"], &tables[..]].concat();
    let refused = lab.kubeon(&modify)?;
    ensure!(refused.code == 2 && refused.err.contains("CLOUD_SECRET_KEY"), "{refused:?}");
    lab.set_environment("CLOUD_SECRET_ID", FakeCloud::SECRET_ID);
    lab.set_environment("CLOUD_SECRET_KEY", FakeCloud::SECRET_KEY);
    let changed: Value = serde_json::from_str(&lab.must(&modify)?)?;
    ensure!(changed["added"] == 3 && changed["removed"] == 0, "{changed}");
    are_to_the_nodes(lab, cluster, &cloud)?;
    let state = fs::read_to_string(lab.file(&format!("{cluster}.json")))?;
    ensure!(!state.contains(FakeCloud::SECRET_KEY), "the state contains the key");
    // The next change of the cluster repeats what fails now.
    cloud.fail_next("UnauthorizedOperation");
    let failed = lab.kubeon(&["create", cluster])?;
    ensure!(failed.code == 1 && failed.out.contains("nothing to do"), "{failed:?}");
    ensure!(failed.err.contains(&format!("kubeon cloud modify-router {cluster}")), "{failed:?}");
    Ok(cloud)
}

/// There is one route for each node, to its pods.
pub(super) fn are_to_the_nodes(lab: &TestLab, cluster: &str, cloud: &FakeCloud) -> Result<()> {
    let nodes: Value = serde_json::from_str(&lab.kubectl(cluster, &["get", "nodes", "-o", "json"])?)?;
    let wanted = nodes["items"].as_array().context("no nodes")?.iter().map(|node| {
        let name = node["metadata"]["name"].as_str()?;
        let addresses = node["status"]["addresses"].as_array()?;
        let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
        Some(CloudRoute {
            destination: node["spec"]["podCIDR"].as_str()?.to_owned(),
            next_hop: internal["address"].as_str()?.to_owned(),
            description: format!("Routing rules set by kubeon for vpc, cluster: {cluster}, node: {name}"),
        })
    });
    let mut wanted: Vec<_> = wanted.collect::<Option<_>>().context("an incomplete node")?;
    let mut found = cloud.routes(TABLE);
    for routes in [&mut wanted, &mut found] {
        routes.sort_by(|left, right| left.destination.cmp(&right.destination));
    }
    ensure!(found == wanted, "{found:#?} instead of {wanted:#?}");
    Ok(())
}

/// A destroyed cluster has no routes. The provider is asked before the first host is changed.
pub(super) fn block_a_destroy(lab: &TestLab, cluster: &str, cloud: &FakeCloud) -> Result<()> {
    let shown = lab.kubeon(&["destroy", cluster, "--dry-run"])?;
    ensure!(shown.code == 0 && shown.err.contains(&format!("({TABLE}) are removed first")), "{shown:?}");
    cloud.fail_next("UnauthorizedOperation");
    let refused = lab.kubeon(&["destroy", cluster, "--yes"])?;
    ensure!(refused.code == 1 && refused.err.contains("UnauthorizedOperation"), "{refused:?}");
    ensure!(refused.err.contains("--forget"), "{refused:?}");
    lab.kubectl(cluster, &["get", "nodes"]).map(drop)
}

/// No route is left.
pub(super) fn are_gone(cloud: &FakeCloud) -> Result<()> {
    let left = cloud.routes(TABLE);
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}
