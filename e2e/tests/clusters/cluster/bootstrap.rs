//! What the certificates on a worker permit: the one with which its kubelet requests its first one, the kubelet's own, which
//! kube-proxy and flannel use too, and the identity of the host.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{eventually, must};
use serde_json::json;

/// Certificate and key with which a kubelet requests its first certificate.
const BOOTSTRAP: [&str; 2] =
    ["/var/lib/kubelet/bootstrap/client.crt", "/var/lib/kubelet/bootstrap/client.key"];
/// Certificate and key of the identity of a host.
const HOST: [&str; 2] = ["/var/lib/kubelet/bootstrap/host.crt", "/var/lib/kubelet/bootstrap/host.key"];
const KUBELET: [&str; 2] = ["/var/lib/kubelet/pki/kubelet-client-current.pem"; 2];
const MINUTE: Duration = Duration::from_secs(60);

/// The bootstrap certificate gets a certificate for the own node of the host, and none for a master.
pub(super) fn a_host_requests_a_certificate_only_for_its_node(lab: &TestLab, cluster: &str) -> Result<()> {
    let identity = CopiedIdentity::of(lab, "h4", BOOTSTRAP)?;
    let request = |node: &str| {
        let name = format!("asked-for-{node}");
        identity.request(lab, cluster, [&name, node, "kubernetes.io/kube-apiserver-client-kubelet"])
    };
    let refused = request("h1").err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("system:node:h4"), "a worker requested the certificate of a master: {refused}");
    request("h4")?;
    eventually("its own request is approved", MINUTE, || {
        let condition = "jsonpath={.status.conditions[0].type}";
        let found = lab.kubectl(cluster, &["get", "csr", "asked-for-h4", "-o", condition])?;
        ensure!(found == "Approved", "{found:?}");
        Ok(())
    })
}

/// The kubelet's own certificate, which flannel uses, changes the own node and no other one.
pub(super) fn a_node_changes_only_itself(lab: &TestLab, cluster: &str) -> Result<()> {
    let identity = CopiedIdentity::of(lab, "h4", KUBELET)?;
    let patch = |node: &str, patch: &str| {
        identity.kubectl(lab, cluster, &["patch", "node", node, "--type=merge", "--patch", patch])
    };
    let mark = r#"{"metadata":{"annotations":{"e2e":"here"}}}"#;
    let refused = patch("h5", mark).err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("not allowed to modify node"), "h4 changed h5: {refused:?}");
    patch("h4", mark)?;
    patch("h4", r#"{"metadata":{"annotations":{"e2e":null}}}"#).map(drop)
}

/// The identity of a host gets no certificate for another node.
pub(super) fn a_host_gets_no_certificate_of_another_node(lab: &TestLab, cluster: &str) -> Result<()> {
    let identity = CopiedIdentity::of_host(lab, "h4")?;
    identity.is_denied(lab, cluster, "h5", "kubeon:host:h4 requests a certificate for system:node:h5")
}

/// A client certificate of a host and its key, copied to this machine.
pub(super) struct CopiedIdentity {
    host: String,
    certificate: String,
    key: String,
}

impl CopiedIdentity {
    /// The identity of a host.
    pub(super) fn of_host(lab: &TestLab, host: &str) -> Result<Self> {
        Self::of(lab, host, HOST)
    }

    fn of(lab: &TestLab, host: &str, [certificate, key]: [&str; 2]) -> Result<Self> {
        let folder = lab.file("identities");
        fs::create_dir_all(&folder)?;
        let copy = |path: &str| -> Result<String> {
            let place = folder.join(format!("{host}{}", path.replace('/', "-")));
            fs::write(&place, lab.on(host, &format!("cat {path}"))?)?;
            Ok(place.to_string_lossy().into_owned())
        };
        Ok(Self { host: host.to_owned(), certificate: copy(certificate)?, key: copy(key)? })
    }

    fn kubectl(&self, lab: &TestLab, cluster: &str, arguments: &[&str]) -> Result<String> {
        let login = ["--client-certificate", &self.certificate, "--client-key", &self.key];
        lab.kubectl(cluster, &[&login[..], arguments].concat())
    }

    /// Requests the client certificate of a kubelet: the name of the request, the node, the signer.
    fn request(&self, lab: &TestLab, cluster: &str, [name, node, signer]: [&str; 3]) -> Result<String> {
        let subject = format!("/O=system:nodes/CN=system:node:{node}");
        let make = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -batch -keyout /dev/null \
                    -addext extendedKeyUsage=clientAuth -subj \"$1\" 2> /dev/null | base64 -w0";
        let encoded = must("sh", &["-c", make, "sh", &subject], &[])?;
        let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {"request": encoded.trim(), "signerName": signer,
                "usages": ["digital signature", "client auth"]}});
        let file = lab.file("request.json");
        fs::write(&file, object.to_string())?;
        self.kubectl(lab, cluster, &["create", "--validate=false", "-f", &file.to_string_lossy()])
    }

    /// Requires that the masters deny the client certificate of a node for this reason.
    pub(super) fn is_denied(&self, lab: &TestLab, cluster: &str, node: &str, reason: &str) -> Result<()> {
        let name = format!("{}-asks-for-{node}", self.host);
        self.request(lab, cluster, [&name, node, "kubeon.io/kubelet-client"])?;
        eventually("a master denies the request", MINUTE, || {
            lab.on("h2", "systemctl start kubeon-renew.service")?;
            let fields =
                "jsonpath={.status.conditions[*].type}: {.status.conditions[*].message}{.status.certificate}";
            let found = lab.kubectl(cluster, &["get", "csr", &name, "-o", fields])?;
            ensure!(found == format!("Denied: {reason}"), "{found:?}");
            Ok(())
        })
    }
}
