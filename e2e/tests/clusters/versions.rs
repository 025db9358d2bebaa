//! A cluster of every minor version of the catalogue.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;

#[test]
#[ignore = "builds bundles for half an hour: ./test long"]
fn soak_a_cluster_of_every_minor_version() -> Result<()> {
    let lab = TestLab::up("e2e-versions", 2)?;
    for version in newest_patches(&lab)? {
        let built = Instant::now();
        lab.must(&["bundle", "build", &version])?;
        lab.must(&["bundle", "verify", &version])?;
        let built = built.elapsed().as_secs_f64();
        let begin = Instant::now();
        one_cluster(&lab, &version).with_context(|| format!("a cluster of {version}"))?;
        let took = begin.elapsed().as_secs_f64();
        println!("  {version}: bundle {built:.0} s, cluster 1 + 1 from nothing to nothing {took:.0} s");
    }
    Ok(())
}

/// The newest version of every minor version, oldest first.
pub(crate) fn newest_patches(lab: &TestLab) -> Result<Vec<String>> {
    let listed = lab.must(&["view", "support", "-o", "name"])?;
    let mut newest: BTreeMap<u32, String> = BTreeMap::new();
    for version in listed.lines() {
        let minor = version.split('.').nth(1).context("a version without a minor version")?;
        newest.insert(minor.parse()?, version.to_owned());
    }
    ensure!(newest.len() >= 4, "the catalogue has four minor versions: {listed}");
    Ok(newest.into_values().collect())
}

fn one_cluster(lab: &TestLab, version: &str) -> Result<()> {
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["create", cluster, version, "-m", &hosts[0], "-w", &hosts[1]])?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, Duration::from_secs(60))?;
    let nodes =
        lab.kubectl(cluster, &["get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"])?;
    ensure!(nodes == format!("{version} {version}"), "{nodes}");
    lab.load_client(cluster)?;
    let image = format!("--image={}", kubeon_e2e::image::NAME);
    let pod = ["run", "probe", &image, "--image-pull-policy=IfNotPresent", "--restart=Never", "--", "sleep"];
    lab.kubectl(cluster, &pod)?;
    lab.kubectl(cluster, &["wait", "--for=condition=Ready", "pod/probe", "--timeout=60s"])?;
    let name = "kubernetes.default.svc.cluster.local";
    lab.kubectl(cluster, &["exec", "probe", "--", "/lab-client", "resolve", name])?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}
