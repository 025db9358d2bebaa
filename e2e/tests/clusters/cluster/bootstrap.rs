//! The certificate with which a kubelet requests its first one.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{eventually, must};
use serde_json::json;

/// It gets a certificate for the own node of the host, and none for a master.
pub(super) fn a_host_requests_a_certificate_only_for_its_node(lab: &TestLab, cluster: &str) -> Result<()> {
    let folder = lab.file("bootstrap");
    fs::create_dir_all(&folder)?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (certificate, key) = (path("client.crt"), path("client.key"));
    for (file, name) in [(&certificate, "client.crt"), (&key, "client.key")] {
        fs::write(file, lab.on("h4", &format!("cat /var/lib/kubelet/bootstrap/{name}"))?)?;
    }
    let request = |node: &str| {
        let subject = format!("/O=system:nodes/CN=system:node:{node}");
        let make = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -batch -keyout /dev/null -subj \"$1\" \
                    2> /dev/null | base64 -w0";
        let encoded = must("sh", &["-c", make, "sh", &subject], &[])?;
        let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("asked-for-{node}")},
            "spec": {"request": encoded.trim(),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", "client auth"]}});
        fs::write(folder.join("request.json"), object.to_string())?;
        let login = ["--client-certificate", &certificate, "--client-key", &key];
        let create = ["create", "--validate=false", "-f", &path("request.json")];
        lab.kubectl(cluster, &[&login[..], &create[..]].concat())
    };
    let refused = request("h1").err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("system:node:h4"), "a worker requested the certificate of a master: {refused}");
    request("h4")?;
    eventually("its own request is approved", Duration::from_secs(60), || {
        let condition = "jsonpath={.status.conditions[0].type}";
        let found = lab.kubectl(cluster, &["get", "csr", "asked-for-h4", "-o", condition])?;
        ensure!(found == "Approved", "{found:?}");
        Ok(())
    })
}
