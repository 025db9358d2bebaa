//! `conformance`: runs the conformance tests of Kubernetes against a cluster in the lab.
//!
//! ```text
//!   modules ──► e2e.test, ginkgo, programs of the test images ─┐
//!   Debian ───► one layer of ordinary programs ────────────────┴─► images ──► kubeon create 1 + 2, image load
//!                                                          ginkgo e2e.test ──► report.json ──► passed of run
//! ```
//!
//! Programs, the layer and the images are cached by what they are made from. Logs and reports stay in `--out`.

mod cluster;
mod programs;
mod report;
mod test_images;
mod test_run;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use kubeon_api::Version;

use cluster::ConformanceCluster;
use programs::TestPrograms;
use test_run::TestRun;

/// The tests of the smoke set: one of every part that a node, the network or the API server may break.
const SMOKE: &str = "create a functioning NodePort service|switch session affinity for NodePort|\
provide DNS for services|provide DNS for ExternalName|function for (intra-pod|node-pod) communication|\
EndpointSlice.*create Endpoints and EndpointSlices|should be submitted and removed|\
run through the lifecycle of a ServiceStatus|RollingUpdateDeployment should delete old pods|\
perform canary updates and phased rolling updates|orphan pods created by rc|\
custom resource definition.*creating/deleting|deny pod and configmap creation|\
Sample API Server|consumable from pods in volume with mappings|updates should be reflected in volume|\
termination message.*from log output|projected.*service account token|run and stop simple daemon|\
be restarted with a /healthz http liveness probe|not allow privilege escalation when false|\
support exec through|update annotations on modification";

/// `cargo xtask conformance`.
#[derive(Args)]
pub(crate) struct Conformance {
    /// The Kubernetes version; conformance/ has its module files, and its bundle must exist.
    #[arg(long, value_name = "VERSION", default_value = "v1.36.3")]
    version: Version,
    /// What the hosts are: namespaces on this machine's kernel, or virtual machines.
    #[arg(long, default_value = "namespaces", value_parser = ["namespaces", "vm"])]
    kind: String,
    /// Run only the tests whose names match this regular expression.
    #[arg(long, value_name = "REGEX", conflicts_with = "smoke")]
    focus: Option<String>,
    /// Run only one or two tests of each part of Kubernetes: at most 10 minutes.
    #[arg(long)]
    smoke: bool,
    /// How many tests run at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    parallel: usize,
    /// The number of tests that must pass; the default is all that run.
    #[arg(long, value_name = "NUMBER")]
    at_least: Option<usize>,
    /// Keep the cluster and its hosts.
    #[arg(long)]
    keep: bool,
    /// Make programs and images, but no cluster.
    #[arg(long)]
    no_run: bool,
    /// The folder of logs, reports and images.
    #[arg(long, value_name = "DIR", default_value = "target/conformance")]
    out: PathBuf,
}

impl Conformance {
    fn focus(&self) -> Option<&str> {
        if self.smoke { Some(SMOKE) } else { self.focus.as_deref() }
    }
}

/// Builds what the tests need, creates the cluster, runs the tests and prints the result.
pub(crate) fn run(root: &Path, arguments: &Conformance) -> Result<()> {
    let root = &fs::canonicalize(root)?;
    fs::create_dir_all(&arguments.out)?;
    let out = &fs::canonicalize(&arguments.out)?;
    let programs = TestPrograms::ensure(root, arguments.version)?;
    let images = test_images::ensure(root, &programs, out)?;
    if arguments.no_run {
        return Ok(());
    }
    let cluster = ConformanceCluster::new(root, &arguments.kind)?;
    let tested = test(arguments, &cluster, &programs, &images.archive, out);
    if !arguments.keep {
        cluster.remove().context("cannot remove the lab of the conformance tests")?;
    }
    let report = tested?;
    crate::terminal::say(&report.text(&images.without_recipe));
    let wanted = arguments.at_least.unwrap_or(report.run());
    ensure!(
        report.run() > 0,
        "no test matches: see e2e.test --list-conformance-tests in {}",
        programs.folder().display()
    );
    ensure!(
        report.passed() >= wanted,
        "{} of {} tests passed; {wanted} must pass. Logs are in {}",
        report.passed(),
        report.run(),
        out.display()
    );
    Ok(())
}

fn test(
    arguments: &Conformance,
    cluster: &ConformanceCluster,
    programs: &TestPrograms,
    images: &Path,
    out: &Path,
) -> Result<report::TestReport> {
    cluster.create(arguments.version)?;
    cluster.load(images)?;
    let run = TestRun {
        programs,
        kubeconfig: cluster.kubeconfig(),
        kubectl: cluster.kubectl(),
        focus: arguments.focus(),
        parallel: arguments.parallel,
        out,
    };
    run.start()
}
