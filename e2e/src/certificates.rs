//! The certificates of a cluster in the lab: how old they are, and others with the dates of a test in their place.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::lab::TestLab;
use crate::program::must;

/// Changes the dates of certificates on a host.
const AGED: &str = include_str!("aged.sh");
/// The authorities of a cluster, as its folder of keys names them.
const AUTHORITIES: [&str; 4] = ["kubernetes", "etcd", "front-proxy", "kubelet-serving"];
/// The kubelet's own client certificate and its key.
const KUBELET: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// The dates of certificates of a year that hosts renew, and plans do not yet: the begin and the end, as `date -d` reads them.
pub const DUE: [&str; 2] = ["-300 days", "+65 days +12 hours"];
/// The dates of certificates of a year that ended.
pub const EXPIRED: [&str; 2] = ["-400 days", "-35 days"];

/// Gives every leaf of kubeon on a host these dates. Each keeps its key and all else, and no step finds it changed.
///
/// # Errors
/// When an authority of the cluster cannot be read, or the host cannot issue a certificate.
pub fn redate_leaves(lab: &TestLab, cluster: &str, host: &str, dates: [&str; 2]) -> Result<()> {
    redate(lab, cluster, host, dates, "")
}

/// Gives the kubelet's own client certificate these dates.
///
/// # Errors
/// As for [`redate_leaves`].
pub fn redate_kubelet(lab: &TestLab, cluster: &str, host: &str, dates: [&str; 2]) -> Result<()> {
    redate(lab, cluster, host, dates, KUBELET)
}

fn redate(lab: &TestLab, cluster: &str, host: &str, [begin, end]: [&str; 2], file: &str) -> Result<()> {
    let mut script = "set -eu; cd \"$(mktemp -d /run/aged.XXXXXX)\"\n".to_owned();
    for name in AUTHORITIES {
        let place = lab.file(&format!("secret/{cluster}/ca-{name}.pem"));
        let text = fs::read_to_string(&place).with_context(|| place.display().to_string())?;
        script += &format!("cat > ca-{name}.pem <<'PEM'\n{}\nPEM\n", text.trim());
    }
    script += &format!("set -- '{begin}' '{end}' {file}\n{AGED}");
    // The error of `on` would contain the script with its keys.
    let answer = lab.kubeon(&["lab", "ssh", host, "--lab", lab.name(), "--", &script])?;
    ensure!(answer.code == 0, "cannot issue certificates on {host}: {}{}", answer.out, answer.err);
    Ok(())
}

/// The days since the begin of the certificate that a server sends to clients.
///
/// # Errors
/// When the server sends none.
pub fn served_age(address: &str) -> Result<i64> {
    age(&format!("openssl s_client -connect {address} < /dev/null 2> /dev/null"))
}

/// The days since the begin of the client certificate in the cluster's kubeconfig of the administrator.
///
/// # Errors
/// When it cannot be read.
pub fn kubeconfig_age(lab: &TestLab, cluster: &str) -> Result<i64> {
    let file = lab.file(&format!("conf/cluster/{cluster}.yaml"));
    age(&format!("sed -n 's/.*client-certificate-data: //p' '{}' | base64 -d", file.display()))
}

/// The days since the begin of the certificate that a command on this machine prints.
fn age(command: &str) -> Result<i64> {
    let line = format!("{command} | {PRINT_BEGIN}");
    days_since(&must("sh", &["-c", &line], &[])?)
}

/// The days since the begin of the certificate in a file of a host.
///
/// # Errors
/// When it cannot be read.
pub fn file_age(lab: &TestLab, host: &str, path: &str) -> Result<i64> {
    days_since(&lab.on(host, &format!("{PRINT_BEGIN} -in {path}"))?)
}

const PRINT_BEGIN: &str = "openssl x509 -noout -startdate -dateopt iso_8601";

fn days_since(output: &str) -> Result<i64> {
    let date = output.trim().strip_prefix("notBefore=").with_context(|| output.to_owned())?;
    Ok(Timestamp::now().duration_since(date.parse()?).as_hours() / 24)
}

/// The cluster's kubeconfig of the administrator, with the client certificate `admin.crt` of a master, which has the same
/// permissions and which the master renews.
///
/// # Errors
/// When it or the certificate cannot be read.
pub fn kubeconfig_of_master(lab: &TestLab, cluster: &str, master: &str) -> Result<String> {
    let mut text = fs::read_to_string(lab.file(&format!("conf/cluster/{cluster}.yaml")))?;
    for (key, leaf) in [("client-certificate-data: ", "admin.crt"), ("client-key-data: ", "admin.key")] {
        let other = lab.on(master, &format!("base64 -w 0 /etc/kubernetes/pki/{leaf}"))?;
        let (head, rest) = text.split_once(key).with_context(|| format!("no {key}"))?;
        let rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        text = format!("{head}{key}{}\n{rest}", other.trim());
    }
    Ok(text)
}
