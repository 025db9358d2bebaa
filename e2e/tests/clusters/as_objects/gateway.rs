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
/// The clusters of a caller in version 1.
pub(super) const V1: &str = "/api/v1/region/default/cluster";
/// The namespaces of callers in version 1.
const CALLERS: [&str; 3] = [
    "user:system:serviceaccount:tenant:deployer=tenant",
    "group:system:serviceaccounts:team-a=team-a",
    "group:system:serviceaccounts:team-b=team-b",
];
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

/// Version 1 with curl: the tenant reaches its own namespace only. Callers without a namespace of their own have `default`, where
/// this one has no rights.
fn version_1(meta: &MetaCluster, gateway: &InstalledGateway, token: &str) -> Result<()> {
    let guest = gateway.token(meta, TENANT, "guest")?;
    let rented = declaration()["spec"]["cluster"].to_string();
    let foreign = r#"{"namespace":"default"}"#;
    for (caller, method, route, body, status, text) in [
        (token, "POST", "rented", rented.as_str(), 400, "already exists"),
        (token, "GET", "rented/logs", "", 400, ""),
        (token, "DELETE", "shop", "{}", 400, "not found"),
        (token, "DELETE", "shop", foreign, 400, "namespace"),
        (token, "POST", "shop/create/callback", r#"{"success":true}"#, 401, ""),
        (guest.as_str(), "DELETE", "shop", "{}", 403, ""),
        ("", "DELETE", "shop", "{}", 401, ""),
    ] {
        let answer = gateway.curl(caller, method, &format!("{V1}/{route}"), body)?;
        let message = answer.1["message"].as_str().unwrap_or_default();
        ensure!(answer.0 == status && message.contains(text), "{method} {route}: {answer:?}");
    }
    Ok(())
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/gateway.yaml")
}

/// A gateway that serves.
pub(super) struct InstalledGateway {
    folder: PathBuf,
    authority: PathBuf,
    url: String,
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
    meta.apply_text(&with_callers(&std::fs::read_to_string(manifest())?)?)?;
    meta.kubectl(&["create", "namespace", TENANT])?;
    meta.patch(&["-n", OPERATOR, "service", "kubeon-gateway"], &json!({"spec": {"type": "NodePort"}}))?;
    meta.kubectl(&["-n", OPERATOR, "rollout", "status", "deployment/kubeon-gateway", "--timeout=120s"])?;
    let service = meta.get(&["-n", OPERATOR, "service", "kubeon-gateway"])?;
    let url = format!("https://{address}:{}", service["spec"]["ports"][0]["nodePort"]);
    let gateway = InstalledGateway { authority: certificate.into(), folder, url };
    Ok(gateway)
}

/// The manifest with the namespaces of callers.
fn with_callers(manifest: &str) -> Result<String> {
    let first = "        - --address=0.0.0.0:8443\n";
    ensure!(manifest.matches(first).count() == 1, "the gateway has other arguments");
    let more: String = CALLERS.iter().map(|rule| format!("        - --caller-namespace={rule}\n")).collect();
    Ok(manifest.replace(first, &format!("{first}{more}")))
}

impl InstalledGateway {
    /// Sends a request with curl; an empty token or body is left out. Returns the status and the answer.
    pub(super) fn curl(&self, token: &str, method: &str, path: &str, body: &str) -> Result<(u16, Value)> {
        let (url, header) = (format!("{}{path}", self.url), format!("authorization: Bearer {token}"));
        let authority = self.authority.to_string_lossy().into_owned();
        let mut arguments = vec![
            "-sS",
            "--max-time",
            "60",
            "--cacert",
            authority.as_str(),
            "-X",
            method,
            "-w",
            "\n%{http_code}",
        ];
        if !token.is_empty() {
            arguments.extend(["-H", header.as_str()]);
        }
        if !body.is_empty() {
            arguments.extend(["-H", "content-type: application/json", "-d", body]);
        }
        arguments.push(&url);
        let answer = must("curl", &arguments, &[])?;
        let (text, status) = answer.rsplit_once('\n').context("curl printed no status")?;
        Ok((status.trim().parse()?, serde_json::from_str(text).unwrap_or_default()))
    }

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
