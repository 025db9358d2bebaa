//! Daily work with a running cluster: contract C, cases 4, 24 to 29, 40 and 41, the output of commands, the
//! renewal of old certificates, and a check that no packet of the lab leaves this machine.

#![allow(clippy::print_stdout, reason = "prints counted packets")]

mod certificates;
mod modules;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::links::{Links, OUTSIDE};
use kubeon_e2e::program::{eventually, must};
use serde_json::Value;

/// Networks of pods and services that no other network uses, so that their packets belong to this cluster.
const NETWORKS: [&str; 2] = ["198.18.0.0/16", "198.19.0.0/16"];

/// A program of the owner with the name of one of the bundle.
const OWN_PROGRAM: &str = "/usr/local/bin/etcdutl";

#[test]
fn daily_commands_work_on_a_running_cluster() -> Result<()> {
    let lab = TestLab::up("e2e-daily", 3)?;
    fs::create_dir_all(lab.file(".kube"))?;
    fs::write(lab.file(".kube/config"), "of another cluster\n")?;
    fs::write(lab.file(".kube/other"), "of another cluster\n")?;
    lab.on("h1", &format!("printf '#!/bin/sh\necho own\n' >{OWN_PROGRAM} && chmod 755 {OWN_PROGRAM}"))?;
    let links = Links::watch(&lab, &NETWORKS)?;
    let networks = ["--pod-cidr", NETWORKS[0], "--svc-cidr", NETWORKS[1]];
    create_as_approved(&lab, &[&lab.create("daily", 1)[..], &networks].concat())?;
    use_selects_a_cluster(&lab)?;
    ls_lists_the_cluster(&lab)?;
    display_shows_the_cluster(&lab)?;
    commands_run(&lab)?;
    files_are_copied(&lab)?;
    images_are_loaded(&lab)?;
    lost_content_is_written_again(&lab)?;
    snapshots_are_scheduled(&lab)?;
    only_an_approved_plan_is_applied(&lab)?;
    modules::are_installed(&lab)?;
    certificates::are_renewed(&lab)?;
    certificates::are_renewed_at_boot(&lab)?;
    plan_has_no_steps(&lab)?;
    destroy(&lab)?;
    no_packet_left(&lab, &links)
}

/// Creates the cluster as its plan says; the plan of another cluster is refused.
fn create_as_approved(lab: &TestLab, create: &[&str]) -> Result<()> {
    let plan = approve(lab, &[create, &["--dry-run", "-o", "json"]].concat())?;
    let approved = ["--approved-plan", &plan];
    let refused = lab.kubeon(&[&lab.create("other", 1)[..], &approved].concat())?;
    ensure!(refused.code == 2 && refused.err.contains("is about daily, not about other"), "{refused:?}");
    lab.must(&[create, &approved].concat()).map(drop)
}

/// Writes the plan that a command prints to a file. Returns its path.
fn approve(lab: &TestLab, plan: &[&str]) -> Result<String> {
    let file = lab.file("approved-plan");
    fs::write(&file, lab.must(plan)?)?;
    Ok(file.to_string_lossy().into_owned())
}

/// What changed since a plan was approved is not repaired with it.
fn only_an_approved_plan_is_applied(lab: &TestLab) -> Result<()> {
    lab.on("h1", "systemctl disable --now kube-scheduler")?;
    let approved = lab.file("plan.json.zst").to_string_lossy().into_owned();
    let plan = ["plan", "daily", "--out", &approved];
    let shown = lab.must(&plan)?;
    ensure!(shown.contains("Apply with: kubeon create daily --approved-plan "), "{shown}");
    lab.on("h1", "systemctl disable --now kube-controller-manager")?;
    let refused = lab.kubeon(&["create", "daily", "--approved-plan", &approved])?;
    ensure!(refused.code == 2 && refused.err.contains("of daily is out of date"), "{refused:?}");
    ensure!(refused.err.contains("kube-controller-manager"), "{refused:?}");
    lab.on("h1", "! systemctl is-active -q kube-scheduler")?;
    lab.must(&plan)?;
    lab.must(&["create", "daily", "--approved-plan", &approved])?;
    lab.on("h1", "systemctl is-active -q kube-scheduler kube-controller-manager").map(drop)
}

/// The command of the example for a timer writes encrypted snapshots to a folder, and keeps the newest ones.
fn snapshots_are_scheduled(lab: &TestLab) -> Result<()> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/snapshots/kubeon-snapshot@.service");
    let unit = fs::read_to_string(unit)?.replace("%i", "daily");
    let (folder, key) = (lab.file("backups"), lab.file("snapshots.key").to_string_lossy().into_owned());
    fs::create_dir_all(&folder)?;
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/kubeon "));
    let line = line
        .context("the unit runs no kubeon")?
        .replace("/var/backups/kubeon/daily", &folder.to_string_lossy())
        .replace("/root/.kubeon/snapshots.key", &key)
        .replace("--keep 14", "--keep 1");
    let words: Vec<&str> = line.split(' ').collect();
    ensure!(words.starts_with(&["etcd", "save", "daily"]) && words.ends_with(&["--keep", "1"]), "{words:?}");
    lab.must(&["etcd", "new-key", &key])?;
    let names = || -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    lab.must(&words)?;
    let first = names()?;
    // The name of a snapshot has the second.
    std::thread::sleep(std::time::Duration::from_secs(1));
    lab.must(&words)?;
    let second = names()?;
    ensure!(first.len() == 2 && second.len() == 2 && first != second, "{first:?}, then {second:?}");
    let newest = folder.join(&second[0]).to_string_lossy().into_owned();
    ensure!(
        lab.kubeon(&["etcd", "check", "daily", &newest])?.err.contains("is encrypted"),
        "without the key"
    );
    let checked = lab.must(&["etcd", "check", "daily", &newest, "--key", &key])?;
    ensure!(checked.contains("is a complete snapshot"), "{checked}");
    let health = lab.kubeon(&["etcd", "health", "daily"])?;
    let age = "daily: the newest snapshot is ";
    ensure!(health.out.contains(age) || health.err.contains(age), "{health:?}");
    Ok(())
}

/// No packet of the lab's hosts left this machine while a cluster ran on them. Packets to other networks do
/// not leave it either, also if a host uses this machine as its router.
fn no_packet_left(lab: &TestLab, links: &Links) -> Result<()> {
    let routes = json(&must("ip", &["-json", "-4", "route", "show", "default"], &[])?)?;
    let router = routes[0]["gateway"].as_str();
    for outside in router.into_iter().chain([OUTSIDE]) {
        lab.on("h1", &format!("ping -c 1 -W 1 {} && ! ping -c 1 -W 1 {outside}", lab.addresses[1]))?;
    }
    lab.on("h2", &format!("ip route add {OUTSIDE} via {} && ! ping -c 1 -W 1 {OUTSIDE}", links.machine))?;
    let counts = links.counts()?;
    println!("  packets on this machine: {counts:?}");
    ensure!(counts.reached > 1000 && counts.arrived > 0, "the lab's packets were not counted: {counts:?}");
    ensure!(counts.passed == 0 && counts.left == 0, "packets of the lab left this machine: {counts:?}");
    links.verify()
}

/// The jump host is an alias of the user's `~/.ssh/config`: for a flag, and for the keyword `ProxyJump` of a host.
fn commands_go_through_a_jump_host(lab: &TestLab) -> Result<()> {
    let [bastion, behind] = [&lab.addresses[0], &lab.addresses[1]];
    fs::create_dir_all(lab.file(".ssh"))?;
    let config = format!(
        "Host bastion\n  HostName {bastion}\nHost {behind}\n  ProxyJump bastion\nHost *\n  User root\n  IdentityFile {}\n",
        lab.key().display()
    );
    fs::write(lab.file(".ssh/config"), config)?;
    let from_h1 =
        format!("journalctl -q --no-pager _COMM=sshd | grep -c 'Accepted .* from {bastion} ' || true");
    let before = lab.on("h2", &from_h1)?;
    let output = lab.must(&["exec", "-J", "bastion", "daily@name=h2", "hostname"])?;
    ensure!(output.contains("h2"), "{output}");
    let by_flag = lab.on("h2", &from_h1)?;
    ensure!(by_flag != before, "the login must come from the jump host");
    // The hosts of a lab do not use the file, so h2 is no host of a lab here: another home folder of kubeon knows none.
    let (home, known) = (lab.file("no-labs"), lab.key().with_file_name("known_hosts"));
    let [home, known] = [&home, &known].map(|path| path.to_string_lossy().into_owned());
    let precheck = ["precheck", "-m", behind, "--known-hosts", &known, "-o", "json"];
    let report = lab.kubeon_with(&precheck, &[("KUBEON_HOME", home.as_str())])?;
    ensure!(json(&report.out)?["hosts"][0]["name"] == "h2", "{report:?}");
    ensure!(lab.on("h2", &from_h1)? != by_flag, "the login must come from the jump host of the file");
    Ok(())
}

/// `image load` writes an image only to the hosts without it.
fn images_are_loaded(lab: &TestLab) -> Result<()> {
    lab.load_client("daily")?;
    let archive = lab.file("lab-client.tar").to_string_lossy().into_owned();
    let load = |more: &[&str]| -> Result<Value> {
        let arguments = [&["image", "load", &archive, "daily", "-o", "json"], more].concat();
        Ok(json(&lab.must(&arguments)?)?[0].clone())
    };
    for host in ["h1", "h2", "h3"] {
        lab.on(host, "touch /run/mark && sleep 0.1")?;
    }
    let again = load(&[])?;
    ensure!(again["skipped"] == serde_json::json!(["h1", "h2", "h3"]), "{again}");
    ensure!(again["loaded"] == serde_json::json!([]), "{again}");
    let output = lab.must(&["image", "load", &archive, "daily"])?;
    ensure!(output.contains("is on 3 nodes of daily already"), "{output}");
    for host in ["h1", "h2", "h3"] {
        let find = "find /var/lib/kubeon /var/lib/containerd/io.containerd.content.v1.content/blobs -newer /run/mark";
        let written = lab.on(host, find)?;
        ensure!(written.trim().is_empty(), "{host} had the image and was changed: {written}");
    }
    lab.on("h2", &format!("ctr -n k8s.io images rm --sync {}", kubeon_e2e::image::NAME))?;
    let planned = load(&["--dry-run"])?;
    ensure!(planned["loaded"] == serde_json::json!(["h2"]), "{planned}");
    let result = load(&[])?;
    ensure!(result["loaded"] == serde_json::json!(["h2"]), "{result}");
    ensure!(result["skipped"] == serde_json::json!(["h1", "h3"]), "{result}");
    lab.on("h2", &format!("ctr -n k8s.io images list -q | grep -x {}", kubeon_e2e::image::NAME)).map(drop)
}

/// `redo` writes the entries of a hosts file and an image that a host lost.
fn lost_content_is_written_again(lab: &TestLab) -> Result<()> {
    let config = lab.must(&["view", "config", "daily", "kubelet"])?;
    ensure!(config.contains("KubeletConfiguration") && config.contains("# kubelet.service"), "{config}");
    let config = lab.must(&["view", "config", "daily", "haproxy"])?;
    ensure!(config.contains("server h1 ") && config.contains("# haproxy.service"), "{config}");
    let names = "sed -n '/# kubeon begin/,/# kubeon end/p' /etc/hosts";
    let before = lab.on("h2", names)?;
    ensure!(before.contains("h1"), "{before}");
    nodes_work_without_names(lab)?;
    lab.must(&["redo", "hosts", "daily"])?;
    let after = lab.on("h2", names)?;
    ensure!(after == before, "{after}");
    let pause = "ctr -n k8s.io images list -q | grep /pause:";
    let image = lab.on("h3", pause)?;
    lab.on("h3", "ctr -n k8s.io images list -q | grep /pause | xargs ctr -n k8s.io images rm --sync")?;
    lab.must(&["redo", "images", "daily"])?;
    ensure!(lab.on("h3", pause)? == image, "{image}");
    Ok(())
}

/// Programs on masters and workers reach the API without the names of the cluster in the hosts files.
fn nodes_work_without_names(lab: &TestLab) -> Result<()> {
    let restart = "sed '/# kubeon begin/,/# kubeon end/d' /etc/hosts >/run/hosts && cat /run/hosts >/etc/hosts && \
                   systemctl restart kubelet kube-proxy && date -u +%FT%T";
    for host in ["h1", "h2"] {
        let time = lab.on(host, restart)?;
        let path = "jsonpath={.spec.renewTime}";
        eventually("the node reports after its restart", Duration::from_secs(60), || {
            let lease = ["-n", "kube-node-lease", "get", "lease", host, "-o", path];
            let renewed = lab.kubectl("daily", &lease)?;
            ensure!(renewed.as_str() > time.trim(), "{host} reported at {renewed}, restarted at {time}");
            Ok(())
        })?;
    }
    Ok(())
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("not JSON: {text}"))
}

/// Cases 4 and 40.
fn use_selects_a_cluster(lab: &TestLab) -> Result<()> {
    for command in ["use", "display", "plan"] {
        let answer = lab.kubeon(&[command, "nosuch"])?;
        ensure!(
            answer.code == 2 && answer.err.contains("Cluster[nosuch] not exist"),
            "{command}: {answer:?}"
        );
    }
    lab.must(&["use", "daily"])?;
    let link = fs::read_link(lab.file(".kube/config"))?;
    ensure!(link == lab.file("conf/cluster/daily.yaml"), "{}", link.display());
    ensure!(
        fs::read_to_string(lab.file(".kube/config.backup"))? == "of another cluster\n",
        "the old file must be kept"
    );
    ensure!(lab.must(&["use"])?.trim() == "daily", "use must print the selected cluster");
    let selected = json(&lab.must(&["use", "daily", "-o", "json"])?)?;
    ensure!(selected["context"] == "daily" && selected["cluster"] == "daily", "{selected}");
    let nodes = lab.kubectl("daily", &["get", "nodes", "-o", "name"])?;
    ensure!(nodes.lines().count() == 3, "{nodes}");
    let mode = fs::metadata(lab.file("conf/cluster/daily.yaml"))?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "the kubeconfig has mode {mode:o}");
    Ok(())
}

fn ls_lists_the_cluster(lab: &TestLab) -> Result<()> {
    let table = lab.must(&["ls"])?;
    let row = table.lines().find(|line| line.contains("daily")).context("daily is not listed")?;
    ensure!(row.starts_with("* ") && row.contains(VERSION) && row.contains("Ready"), "{table}");
    let value = json(&lab.must(&["ls", "-o", "json"])?)?;
    ensure!(value.to_string().contains("\"daily\""), "{value}");
    ensure!(lab.must(&["ls", "-o", "name"])?.trim() == "daily", "-o name");
    Ok(())
}

/// Case 29.
fn display_shows_the_cluster(lab: &TestLab) -> Result<()> {
    let text = lab.must(&["display", "daily"])?;
    let headings =
        ["cert info", "node info", "pod info", "container info", "etcd info", "using etcdctl version: 3."];
    let positions: Vec<_> = headings
        .iter()
        .map(|heading| text.find(heading).with_context(|| format!("{heading}\n{text}")))
        .collect::<Result<_>>()?;
    ensure!(positions.is_sorted(), "the headings must be in order\n{text}");
    let value = json(&lab.must(&["cluster-info", "daily", "-o", "json"])?)?;
    ensure!(value["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3), "{value}");
    ensure!(value["etcd"]["members"].as_array().is_some_and(|members| members.len() == 1), "{value}");
    let supported = lab.must(&["view", "support"])?;
    ensure!(supported.contains("v1.36.3"), "{supported}");
    let components = lab.must(&["view", "component", VERSION])?;
    ensure!(components.contains("etcd") && components.contains("containerd"), "{components}");
    Ok(())
}

/// Cases 24 to 27.
fn commands_run(lab: &TestLab) -> Result<()> {
    let names = |selector: &str| -> Result<Vec<String>> {
        let out = lab.must(&["exec", selector, "hostname"])?;
        Ok(out.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect())
    };
    let second = format!("daily@ip={}", lab.addresses[1]);
    for (selector, wanted) in [
        ("daily@all", &["h1", "h2", "h3"][..]),
        ("daily@cp1", &["h1"]),
        ("daily@cp*", &["h1"]),
        ("daily@w*", &["h2", "h3"]),
        ("daily@j*", &["h2", "h3"]),
        ("daily@name=h1,h3", &["h1", "h3"]),
        ("daily@n=H2", &["h2"]),
        (&second, &["h2"]),
    ] {
        ensure!(names(selector)? == wanted, "{selector}: {:?}", names(selector)?);
    }
    let output = lab.must(&["exec", "daily@cp1", "echo", "-p", "'a b'", "-p", "'$HOME'"])?;
    ensure!(output.trim_end().ends_with("a b $HOME"), "{output}");
    commands_go_through_a_jump_host(lab)?;
    let failed = lab.kubeon(&["exec", "daily@w*", "exit 3"])?;
    ensure!(failed.code == 1 && failed.err.contains("failed on 2 of 2 nodes"), "{failed:?}");
    for (selector, cause) in [
        ("all", "selector format error"),
        ("@all", "selector format error"),
        ("daily@bad", "Invalid node selector"),
        ("daily@name=h9", "h9"),
    ] {
        let answer = lab.kubeon(&["exec", selector, "true"])?;
        ensure!(answer.code == 2 && answer.err.contains(cause), "{selector}: {answer:?}");
    }
    Ok(())
}

/// Case 28.
fn files_are_copied(lab: &TestLab) -> Result<()> {
    let source = lab.file("tool.sh");
    fs::write(&source, "#!/bin/sh\necho here\n")?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o750))?;
    let source = source.to_string_lossy().into_owned();
    lab.must(&["copy", "daily@all", &source, "/opt/x/y/z"])?;
    for host in ["h1", "h2", "h3"] {
        ensure!(lab.on(host, "stat -c %a /opt/x/y/z && /opt/x/y/z")? == "750\nhere\n", "{host}");
    }
    lab.must(&["cp", "daily@w*", &source, "/tmp"])?;
    ensure!(lab.on("h3", "/tmp/tool.sh")? == "here\n", "a copy to a folder must keep the file's name");
    let answer = lab.kubeon(&["copy", "daily@all", "/nowhere/x", "/opt/x"])?;
    ensure!(answer.code == 2 && answer.err.contains("/nowhere/x"), "{answer:?}");
    Ok(())
}

fn plan_has_no_steps(lab: &TestLab) -> Result<()> {
    ensure!(lab.plan("daily")?.is_empty(), "the plan must have no steps");
    let answer = lab.kubeon(&["plan", "daily"])?;
    let output = format!("{}{}", answer.out, answer.err);
    ensure!(answer.code == 0 && output.contains("nothing to do"), "{answer:?}");
    Ok(())
}

/// Case 41: files of other clusters remain.
fn destroy(lab: &TestLab) -> Result<()> {
    lab.must(&["destroy", "daily", "--yes"])?;
    ensure!(
        fs::read_to_string(lab.file(".kube/other"))? == "of another cluster\n",
        "other kubeconfigs must remain"
    );
    ensure!(!lab.file("conf/cluster/daily.yaml").exists(), "the kubeconfig must be removed");
    for host in ["h1", "h2", "h3"] {
        lab.on(
            host,
            "test ! -e /etc/kubernetes && test ! -e /var/lib/etcd && ! systemctl is-active -q kubelet",
        )
        .with_context(|| format!("{host} has leftovers"))?;
    }
    let own = lab.on("h1", OWN_PROGRAM)?;
    ensure!(own == "own\n", "the owner's program must remain: {own}");
    Ok(())
}
