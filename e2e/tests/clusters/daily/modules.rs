//! `kubeon module`: a program of a user on some nodes, and the objects of a program of the bundle.

use std::fs;

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::must;

const INSTALLER: &str = "mkdir -p /opt/agent; echo \"$1 $2 $(pwd)\" >/opt/agent/arguments
cp agent.service /etc/systemd/system/; systemctl daemon-reload; echo installed\n";
const UNINSTALLER: &str = "systemctl disable --now agent; rm -r /opt/agent /etc/systemd/system/agent.service; systemctl daemon-reload\n";
const UNIT: &str = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n";

pub(super) fn are_installed(lab: &TestLab) -> Result<()> {
    let archive = archive(
        lab,
        "agent",
        &[("install.sh", INSTALLER), ("uninstall.sh", UNINSTALLER), ("agent.service", UNIT)],
    )?;
    let planned = lab.must(&["module", "install", "daily@w*", &archive, "--dry-run"])?;
    ensure!(planned.contains("h2") && planned.contains("enable agent.service"), "{planned}");
    lab.on("h2", "test ! -e /opt/agent && test ! -e /opt/kubeon")?;
    let installed = lab.must(&["module", "install", "daily@w*", &archive])?;
    ensure!(installed.matches("installed").count() == 2, "{installed}");
    for host in ["h2", "h3"] {
        let arguments = lab.on(
            host,
            "systemctl is-active -q agent && systemctl is-enabled -q agent && cat /opt/agent/arguments",
        )?;
        ensure!(
            arguments.starts_with(&format!("{VERSION} containerd /opt/kubeon/modules/agent.")),
            "{arguments}"
        );
        lab.on(host, "test \"$(ls /opt/kubeon/modules | tr '\\n' ' ')\" = 'agent agent.tar '")?;
    }
    lab.on("h1", "test ! -e /opt/agent")?;
    lab.must(&["module", "uninstall", "daily@w*", "agent"])?;
    lab.on("h2", "test ! -e /opt/agent && test ! -e /opt/kubeon && ! systemctl is-active -q agent")?;
    let again = lab.must(&["module", "uninstall", "daily@all", "agent"])?;
    ensure!(again.matches("agent is not installed").count() == 3, "{again}");
    installer_fails(lab)?;
    objects_are_applied(lab)
}

/// The exit code names what failed, and nothing but the archive stays.
fn installer_fails(lab: &TestLab) -> Result<()> {
    let archive = archive(lab, "broken", &[("install.sh", "echo 'no such device' >&2; exit 3\n")])?;
    let failed = lab.kubeon(&["module", "install", "daily@h2", &archive])?;
    ensure!(failed.code == 1 && failed.err.contains("exit code 3"), "{failed:?}");
    ensure!(failed.err.contains("no such device"), "{failed:?}");
    lab.on("h2", "test \"$(ls /opt/kubeon/modules)\" = broken.tar")?;
    lab.must(&["module", "uninstall", "daily@h2", "broken"]).map(drop)
}

fn objects_are_applied(lab: &TestLab) -> Result<()> {
    let delete = ["-n", "kube-system", "delete", "configmap", "coredns"];
    lab.kubectl("daily", &delete)?;
    let planned = lab.must(&["module", "inner", "daily", "coredns", "--dry-run"])?;
    ensure!(planned.contains("configmap/coredns") && planned.contains("dry run"), "{planned}");
    lab.must(&["module", "inner", "daily", "coredns"])?;
    lab.kubectl("daily", &["-n", "kube-system", "get", "configmap", "coredns"])?;
    let unknown = lab.kubeon(&["module", "inner", "daily", "istio"])?;
    ensure!(
        unknown.code == 0 && unknown.err.contains("not found or not need this module istio"),
        "{unknown:?}"
    );
    Ok(())
}

/// Makes an archive of files with these contents.
fn archive(lab: &TestLab, name: &str, files: &[(&str, &str)]) -> Result<String> {
    let folder = lab.file(name);
    fs::create_dir_all(&folder)?;
    for (file, content) in files {
        fs::write(folder.join(file), content)?;
    }
    let archive = lab.file(&format!("{name}.tar")).display().to_string();
    must("tar", &["-cf", &archive, "-C", &folder.display().to_string(), "."], &[])?;
    Ok(archive)
}
