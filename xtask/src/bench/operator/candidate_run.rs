//! Runs the process of an operator on the API server and watches both.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, discovery};
use kubeon_envtest::TestApiServer;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::audit::{Audit, AuditedRequest};
use super::bench_server::{self, ACCOUNT, BenchServer};
use super::candidate::{Candidate, fill};
use super::objects;
use super::sightings::{Sightings, is_done};
use super::usage::{self, ProcessUsage, Servers, Used};
use super::watches::{Kinds, Watches};

/// The number of unexpected ends in one phase after which the benchmark fails.
const MAX_ENDS: usize = 20;
/// The time limit for reconciling the first cluster after the operator's start.
const FIRST_TIMEOUT: Duration = Duration::from_secs(120);

/// The measurement of one candidate.
pub(super) struct CandidateRun {
    pub(super) candidate: Arc<Candidate>,
    pub(super) client: Client,
    pub(super) kinds: Kinds,
    pub(super) watches: Watches,
    /// Clusters that were created.
    pub(super) clusters: usize,
    /// Operations that were created.
    pub(super) operations: usize,
    audit: Audit,
    // The fields are in the order in which they must be dropped.
    operator: Option<Child>,
    /// The number of unexpected ends of the operator since [`CandidateRun::begin`].
    pub(super) ends: usize,
    files: TempDir,
    bench_server: Arc<BenchServer>,
}

impl CandidateRun {
    /// Creates the candidate's kinds, namespace and account on an API server without objects of other
    /// candidates.
    pub(super) async fn new(bench_server: &Arc<BenchServer>, candidate: &Arc<Candidate>) -> Result<Self> {
        let server = &bench_server.server;
        let files = bench_server::folder()?;
        server.apply_crds(&candidate.crds).await?;
        let client = server.client().await?;
        create_account(&client, &candidate.namespace).await?;
        let kinds = kinds(&client, candidate).await?;
        write_account(server, candidate, files.path()).await?;
        let watches = Watches::watch(&client, candidate, &kinds);
        let mut audit = Audit::new(&bench_server.log());
        // Skips the requests of earlier candidates.
        audit.take()?;
        Ok(Self {
            candidate: Arc::clone(candidate),
            client,
            kinds,
            watches,
            clusters: 0,
            operations: 0,
            audit,
            operator: None,
            ends: 0,
            files,
            bench_server: Arc::clone(bench_server),
        })
    }

    /// Ends the operator and removes all its objects.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.kill().await?;
        self.bench_server.clear(&self.candidate).await
    }

    /// Starts the operator and waits until it has reconciled a first cluster, which no phase counts. Returns
    /// the seconds.
    pub(super) async fn start(&mut self) -> Result<f64> {
        let begin = Instant::now();
        self.spawn()?;
        let name = "bench-first".to_owned();
        objects::clusters(&self.client, &self.candidate, &self.kinds, std::slice::from_ref(&name)).await?;
        let wanted = objects::references_of(&self.candidate, &name)?;
        let done = self.until(FIRST_TIMEOUT, |sightings| is_done(sightings, &name, &wanted)).await?;
        ensure!(
            done,
            "the operator reconciled no cluster within {} s; the end of its log:\n{}",
            FIRST_TIMEOUT.as_secs(),
            self.log_tail()
        );
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Starts the operator's process.
    pub(super) fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.files.path().join("operator.log"))?;
        let (kubeconfig, account) =
            (self.files.path().join("kubeconfig"), self.files.path().join("serviceaccount"));
        let (host, port) = self
            .bench_server
            .server
            .url()
            .trim_start_matches("https://")
            .split_once(':')
            .context("no port")?;
        let (kubeconfig, account) = (kubeconfig.display().to_string(), account.display().to_string());
        let values = [
            ("kubeconfig", kubeconfig.as_str()),
            ("serviceaccount", account.as_str()),
            ("host", host),
            ("port", port),
            ("namespace", self.candidate.namespace.as_str()),
        ];
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.candidate.program);
        command.args(self.candidate.arguments.iter().map(|argument| fill(argument, &values)));
        command.envs(self.candidate.environment.iter().map(|(key, value)| (key, fill(value, &values))));
        command.env("KUBECONFIG", &kubeconfig).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.kill_on_drop(true);
        self.operator = Some(command.spawn().context("cannot start setpriv")?);
        Ok(())
    }

    /// Ends the operator with SIGKILL, like a lost machine.
    pub(super) async fn kill(&mut self) -> Result<()> {
        if let Some(mut operator) = self.operator.take() {
            operator.kill().await?;
        }
        Ok(())
    }

    /// Waits until `enough` holds; false if it does not within `limit`. An operator that ends unexpectedly is
    /// started again, as in a Deployment.
    pub(super) async fn until(
        &mut self,
        limit: Duration,
        enough: impl Fn(&Sightings) -> bool,
    ) -> Result<bool> {
        let begin = Instant::now();
        loop {
            let operator = self.operator.as_mut().context("the operator is not running")?;
            tokio::select! {
                done = self.watches.until(limit.saturating_sub(begin.elapsed()), &enough) => return done,
                status = operator.wait() => { status?; }
            }
            self.restart_if_ended()?;
        }
    }

    fn restart_if_ended(&mut self) -> Result<()> {
        let operator = self.operator.as_mut().context("the operator is not running")?;
        let Some(status) = operator.try_wait()? else { return Ok(()) };
        self.ends += 1;
        ensure!(
            self.ends < MAX_ENDS,
            "the operator ended {MAX_ENDS} times in one phase: {}",
            self.log_tail()
        );
        crate::terminal::say(&format!("  the operator ended unexpectedly ({status}):\n{}", self.log_tail()));
        self.spawn()
    }

    fn process(&self) -> Result<u32> {
        self.operator.as_ref().and_then(Child::id).context("the operator is not running")
    }

    /// Starts a phase: resets the requests and the peak of memory. Returns the usage so far.
    pub(super) fn begin(&mut self) -> Result<Used> {
        self.restart_if_ended()?;
        self.audit.take()?;
        self.ends = 0;
        usage::reset_peak(self.process()?);
        self.usage()
    }

    /// The usage of all processes so far.
    pub(super) fn usage(&mut self) -> Result<Used> {
        self.restart_if_ended()?;
        let operator = ProcessUsage::of(self.process()?)
            .with_context(|| format!("the end of its log:\n{}", self.log_tail()))?;
        Ok(Used { operator, servers: self.servers()?, harness: ProcessUsage::of(std::process::id())?.cpu })
    }

    /// The CPU seconds of the servers so far.
    pub(super) fn servers(&self) -> Result<Servers> {
        let cpu = |process| ProcessUsage::of(process).map(|usage| usage.cpu);
        Ok(Servers {
            api: cpu(self.bench_server.server.process())?,
            etcd: cpu(self.bench_server.server.etcd_process())?,
        })
    }

    /// The operator's requests since the last call or [`CandidateRun::begin`].
    pub(super) fn requests(&mut self) -> Result<Vec<AuditedRequest>> {
        self.audit.take()
    }

    /// The end of the operator's log.
    pub(super) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.files.path().join("operator.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

async fn create_account(client: &Client, namespace: &str) -> Result<()> {
    let object = json!({ "metadata": { "name": namespace } });
    let namespaces = Api::<Namespace>::all(client.clone());
    if namespaces.get_opt(namespace).await?.is_none() {
        namespaces.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": ACCOUNT },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace }],
    });
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    let params = PatchParams::apply("bench").force();
    bindings.patch(ACCOUNT, &params, &Patch::Apply(&binding)).await?;
    Ok(())
}

/// Writes a kubeconfig and the files of a service account as in a Pod.
async fn write_account(server: &TestApiServer, candidate: &Candidate, folder: &Path) -> Result<()> {
    let token = server.service_account(&candidate.namespace, ACCOUNT).await?;
    let account = folder.join("serviceaccount");
    fs::create_dir(&account)?;
    fs::write(folder.join("kubeconfig"), server.kubeconfig_of_token(&token))?;
    fs::write(account.join("token"), &token)?;
    fs::write(account.join("ca.crt"), server.ca_certificate())?;
    fs::write(account.join("namespace"), &candidate.namespace)?;
    Ok(())
}

async fn kinds(client: &Client, candidate: &Candidate) -> Result<Kinds> {
    let cluster = resource(client, &candidate.cluster("a")?).await?;
    let operation = resource(client, &candidate.operation("a", "a")?).await?;
    Ok(Kinds { cluster, operation })
}

async fn resource(client: &Client, object: &DynamicObject) -> Result<kube::api::ApiResource> {
    let Some(types) = &object.types else { bail!("a template without kind") };
    let kind = GroupVersionKind::try_from(types)?;
    Ok(discovery::pinned_kind(client, &kind).await?.0)
}
