//! The user needs a password for sshd and sudo.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use serde_json::{Value, json};

/// Creates a cluster of the first two hosts. A wrong password of sudo changes nothing.
pub(super) fn create(lab: &TestLab, cluster: &str) -> Result<()> {
    let (password, wrong) = (format!("@{}", lab.password().display()), lab.file("wrong"));
    fs::write(&wrong, "not the password\n")?;
    let wrong = format!("@{}", wrong.display());
    let login = login(&password);
    let create = ["create", cluster, VERSION, "-m", &lab.addresses[0], "-w", &lab.addresses[1]];
    let sudo = ["--default-sudo-passwd", &wrong];
    let refused = lab.kubeon(&[&create[..], &login, &sudo].concat())?;
    ensure!(refused.code == 2 && refused.err.contains("operator may not become root"), "{refused:?}");
    lab.on("h1", "test ! -e /var/lib/kubeon")?;
    lab.must(&[&create[..], &login].concat())?;
    let plan = lab.must(&[&["plan", cluster, "-o", "json"], &login[..]].concat())?;
    let plan: Value = serde_json::from_str(&plan).with_context(|| format!("not JSON: {plan}"))?;
    ensure!(plan["steps"] == json!([]), "{plan}");
    let all = format!("{cluster}@all");
    let output = lab.must(&[&["exec", &all, "id -u"], &login[..]].concat())?;
    ensure!(output.trim().ends_with(" 0"), "{output}");
    lab.on("h1", "journalctl -q --no-pager _COMM=sshd | grep 'Accepted password for operator '")?;
    lab.on("h1", "! journalctl -q --no-pager _COMM=sshd | grep 'Accepted publickey for operator '")?;
    let state = fs::read_to_string(lab.file(&format!("{cluster}.json")))?;
    let secret = fs::read_to_string(lab.password())?;
    ensure!(!state.contains(secret.trim()), "the state must contain no password");
    Ok(())
}

/// Destroys that cluster.
pub(super) fn destroy(lab: &TestLab, cluster: &str) -> Result<()> {
    let password = format!("@{}", lab.password().display());
    lab.must(&[&["destroy", cluster, "--yes"], &login(&password)[..]].concat()).map(drop)
}

fn login(password: &str) -> [&str; 4] {
    ["--default-user", "operator", "--default-passwd", password]
}
