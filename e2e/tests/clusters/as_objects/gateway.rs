//! The gateway as pods of the meta cluster. A tenant uses version 1 and version 2 and the command line; neither shows nor
//! harms what belongs to others.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use kubeon_e2e::program::{Answer, must};
use serde_json::{Value, json};

use super::declared_cluster::declared;
use super::environment::{MetaCluster, OPERATOR, WEBHOOK_UNAVAILABLE};
use super::{MINUTE, print_time};

/// The namespace of a tenant.
const TENANT: &str = "tenant";
/// The name of the gateway in its certificate.
const SERVICE: &str = "kubeon-gateway.kubeon-system.svc";

/// Installs the gateway and uses it as a tenant and as an administrator.
pub(crate) fn run(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    let gateway = install(meta)?;
    let tenant = gateway.token(meta, TENANT, "deployer")?;
    let admin = gateway.token(meta, OPERATOR, "administrator")?;
    meta.kubectl(&[
        "create",
        "clusterrolebinding",
        "rest-admin",
        "--clusterrole=cluster-admin",
        &format!("--serviceaccount={OPERATOR}:administrator"),
    ])?;
    meta.kubectl(&[
        "-n",
        TENANT,
        "create",
        "rolebinding",
        "deployer",
        "--clusterrole=kubeon-cluster-editor",
        &format!("--serviceaccount={TENANT}:deployer"),
    ])?;

    let declared = gateway.file("tenant.yaml", &declaration().to_string())?;
    gateway.must(meta, &tenant, TENANT, &["create", "-f", &declared])?;
    let listed = gateway.must(meta, &tenant, TENANT, &["ls", "-o", "name"])?;
    ensure!(listed == "tenant/rented\n", "{listed}");
    let shown = gateway.must(meta, &tenant, TENANT, &["display", "rented"])?;
    ensure!(shown.contains("tenant/rented") && !shown.contains("hunter2"), "{shown}");
    let foreign = gateway.kubeon(meta, &tenant, "default", &["ls"])?;
    ensure!(foreign.code == 2 && foreign.err.contains("may not list"), "{foreign:?}");
    let operations = gateway.kubeon(meta, &tenant, "default", &["operations"])?;
    ensure!(operations.code == 2 && operations.err.contains("may not list"), "{operations:?}");
    version_1(meta, &gateway, &tenant)?;
    planned(meta, &gateway, &admin)?;

    let name = meta.eventually("an operation succeeds", MINUTE * 5, || {
        let all = gateway.must(meta, &admin, "", &["operations", "-o", "json"])?;
        let all: Value = serde_json::from_str(&all)?;
        // Every user of this lab has a name. What was derived from `planned` disappears with it.
        let done = |operation: &&Value| {
            operation["status"] == "Succeeded"
                && operation["requestedBy"].is_string()
                && operation["cluster"] != "planned"
        };
        let name = all.as_array().and_then(|all| all.iter().find(done)?["name"].as_str());
        Ok(name.with_context(|| format!("{all}"))?.to_owned())
    })?;
    let log = gateway.must(meta, &admin, "", &["logs", &name, "--tail", "5"])?;
    ensure!((1..=5).contains(&log.lines().count()), "{log}");
    meta.kubectl(&["-n", TENANT, "delete", "ecs", "rented", "--timeout=60s"])?;
    let objects = manifest().to_string_lossy().into_owned();
    meta.kubectl(&["delete", "-f", &objects])?;
    print_time("gateway", start);
    Ok(())
}

/// The operator does not watch the tenant's namespace, so no Job runs.
fn declaration() -> Value {
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": "rented", "namespace": TENANT},
        "spec": {"deletionPolicy": "Retain", "cluster": {"masterList": [{"ip": "192.0.2.10"}],
            "authConfig": {"password": "hunter2"}}}})
}

/// A change that is planned on real hosts and not approved: nothing is written to them.
fn planned(meta: &MetaCluster, gateway: &InstalledGateway, token: &str) -> Result<()> {
    let start = Instant::now();
    let declaration = declared("planned", VERSION, meta.address("h2")?, &[]);
    let file = gateway.file("planned.yaml", &declaration.to_string())?;
    let plan = gateway.must(meta, token, "", &["plan", "-f", &file])?;
    ensure!(plan.contains("kube-apiserver"), "{plan}");
    let again = gateway.kubeon(meta, token, "", &["plan", "-f", &file])?;
    ensure!(again.code == 0 && again.out.contains("kube-apiserver"), "the same plan again: {again:?}");
    ensure!(again.err.contains("kubeon --server URL approve "), "{again:?}");
    meta.lab
        .on("h2", "! test -e /etc/kubernetes && ! systemctl is-active -q etcd")
        .context("a plan writes nothing")?;
    meta.kubectl(&["delete", "ecs", "planned", "--timeout=60s"])?;
    print_time("a plan from the command line", start);
    Ok(())
}

/// The tenant has the namespace `default` in version 1, where it has no rights.
fn version_1(meta: &MetaCluster, gateway: &InstalledGateway, token: &str) -> Result<()> {
    let url = format!("{}/api/v1/region/default/cluster/shop", gateway.url);
    let header = format!("authorization: Bearer {token}");
    let authority = gateway.authority.to_string_lossy().into_owned();
    let curl =
        |arguments: &[&str]| must("curl", &[&["-sS", "--cacert", &authority][..], arguments].concat(), &[]);
    let refused = curl(&["-H", &header, "-X", "DELETE", "-d", "{}", &url])?;
    ensure!(refused.contains(r#""code":"Forbidden""#), "{refused}");
    let stranger = curl(&["-X", "DELETE", "-d", "{}", &url])?;
    ensure!(stranger.contains(r#""code":"Unauthorized""#), "{stranger}");
    let forged = curl(&["-H", &header, "-d", r#"{"success":true}"#, &format!("{url}/create/callback")])?;
    ensure!(forged.contains(r#""code":"Unauthorized""#), "{forged}");
    meta.kubectl(&["get", "namespace", TENANT]).map(drop)
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/gateway.yaml")
}

/// A gateway that serves.
pub(super) struct InstalledGateway {
    folder: PathBuf,
    pub(super) authority: PathBuf,
    pub(super) url: String,
}

pub(super) fn install(meta: &MetaCluster) -> Result<InstalledGateway> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let image = root.join("target/images/kubeon-gateway.tar").to_string_lossy().into_owned();
    meta.lab.must(&["image", "load", &image, "meta"])?;
    let folder = meta.lab.file("gateway");
    std::fs::create_dir_all(&folder)?;
    let address = meta.address("h1")?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (certificate, key) = (path("tls.crt"), path("tls.key"));
    let names = format!("subjectAltName=DNS:{SERVICE},IP:{address}");
    must(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=kubeon-gateway",
            "-addext",
            &names,
            // rustls accepts no authority as the certificate of a server.
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ],
        &[],
    )?;
    let (certificate_flag, key_flag) = (format!("--cert={certificate}"), format!("--key={key}"));
    meta.kubectl(&[
        "-n",
        OPERATOR,
        "create",
        "secret",
        "tls",
        "kubeon-gateway-tls",
        &certificate_flag,
        &key_flag,
    ])?;
    meta.apply_text(&std::fs::read_to_string(manifest())?)?;
    meta.kubectl(&["create", "namespace", TENANT])?;
    meta.patch(&["-n", OPERATOR, "service", "kubeon-gateway"], &json!({"spec": {"type": "NodePort"}}))?;
    meta.kubectl(&["-n", OPERATOR, "rollout", "status", "deployment/kubeon-gateway", "--timeout=120s"])?;
    let service = meta.get(&["-n", OPERATOR, "service", "kubeon-gateway"])?;
    let url = format!("https://{address}:{}", service["spec"]["ports"][0]["nodePort"]);
    let gateway = InstalledGateway { authority: certificate.into(), folder, url };
    Ok(gateway)
}

impl InstalledGateway {
    /// A token of a new service account.
    pub(super) fn token(&self, meta: &MetaCluster, namespace: &str, name: &str) -> Result<String> {
        meta.kubectl(&["-n", namespace, "create", "serviceaccount", name])?;
        Ok(meta.kubectl(&["-n", namespace, "create", "token", name])?.trim().to_owned())
    }

    pub(super) fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// Runs `kubeon` with the gateway; an empty namespace means all.
    pub(super) fn kubeon(
        &self,
        meta: &MetaCluster,
        token: &str,
        namespace: &str,
        arguments: &[&str],
    ) -> Result<Answer> {
        let (token, authority) = (self.file("token", token)?, self.authority.to_string_lossy().into_owned());
        let mut environment = vec![
            ("KUBEON_SERVER", self.url.as_str()),
            ("KUBEON_TOKEN_FILE", token.as_str()),
            ("KUBEON_SERVER_CA", authority.as_str()),
        ];
        if !namespace.is_empty() {
            environment.push(("KUBEON_SERVER_NAMESPACE", namespace));
        }
        // The rules of the proxy for Services need a moment on the node, and other tests kill operators.
        meta.eventually("the gateway answers", MINUTE, || {
            let answer = meta.lab.kubeon_with(arguments, &environment)?;
            let is_unavailable =
                ["was not reached", WEBHOOK_UNAVAILABLE].iter().any(|text| answer.err.contains(text));
            ensure!(!is_unavailable, "{}", answer.err);
            Ok(answer)
        })
    }

    pub(super) fn must(
        &self,
        meta: &MetaCluster,
        token: &str,
        namespace: &str,
        arguments: &[&str],
    ) -> Result<String> {
        let answer = self.kubeon(meta, token, namespace, arguments)?;
        ensure!(answer.code == 0, "{answer:?}");
        Ok(answer.out)
    }
}
