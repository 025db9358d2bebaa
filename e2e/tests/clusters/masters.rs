//! Masters of a cluster that serves: two join a single one, the first dies and is replaced, and one leaves. A pod writes all
//! the time, and no acknowledged write is lost. A worker that is off meanwhile finds the new masters by itself.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::{self, eventually};
use kubeon_e2e::running::Running;
use kubeon_e2e::writer;
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);

/// Asks the API server for its version over one connection through the haproxy of the host, five times a second, until the
/// connection ends or it is stopped. It is not a connection to a master whose address is an argument: its certificate has it.
const ONE_CONNECTION: &str = r#"
import re, socket, ssl, sys, time
context = ssl.create_default_context(cafile="/etc/kubernetes/pki/ca.crt")
context.load_cert_chain("/var/lib/kubelet/pki/kubelet-client-current.pem")
opened = []
while True:
    plain = socket.create_connection(("127.0.0.1", 6443), 5)
    client = context.wrap_socket(plain, server_hostname="127.0.0.1")
    # haproxy gives the next one to the master with the fewest.
    opened.append(client)
    if not {name for _, name in client.getpeercert()["subjectAltName"]} & set(sys.argv[1:]):
        break
for other in opened[:-1]:
    other.close()
answers = 0
while True:
    client.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer or len(answer) < end:
        more = client.recv(65536)
        assert more, "the connection ended"
        answer += more
        size = re.search(rb"Content-Length: (\d+)", answer)
        end = answer.find(b"\r\n\r\n") + 4 + (int(size[1]) if size else 0)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    answers += 1
    with open("/run/answers.txt", "w") as file:
        file.write(str(answers))
    time.sleep(0.2)
"#;

#[test]
fn masters_join_are_replaced_and_leave() -> Result<()> {
    let lab = TestLab::up("e2e-masters", 8)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let workers = format!("{},{}", hosts[1], hosts[5]);
    lab.must(&["create", cluster, VERSION, "-m", &hosts[0], "-w", &workers])?;
    lab.must(&["use", cluster])?;
    // The writer runs on h2, and h6 is switched off.
    lab.kubectl(cluster, &["cordon", "h6"])?;
    writer::start(&lab, "masters", 100)?;

    open_connection(&lab, "")?;
    join_with_a_kill(&lab, &hosts[2..4].join(","))?;
    connection_is_open(&lab, "masters joined")?;
    ensure!(voters(&lab, "h3")? == names(["h1", "h3", "h4"]), "{:?}", voters(&lab, "h3")?);

    lab.host("kill", "h6")?;
    let refused = lab.kubeon(&["replace", cluster, "h1", &hosts[4], "--yes"])?;
    ensure!(refused.code == 2 && refused.err.contains("is not lost: its host answers"), "{refused:?}");
    lab.host("kill", "h1")?;
    let refused = lab.kubeon(&["delon", cluster, "h3", "--yes"])?;
    ensure!(refused.code == 2 && refused.err.contains("that is no quorum"), "{refused:?}");
    let start = Instant::now();
    lab.must(&["replace", cluster, "h1", &hosts[4], "--yes"])?;
    println!("  the first master was replaced in {:.1} s", start.elapsed().as_secs_f64());
    ensure!(voters(&lab, "h3")? == names(["h3", "h4", "h5"]), "{:?}", voters(&lab, "h3")?);
    ensure!(
        haproxy_knows(&lab, "h2", &hosts[4])? && !haproxy_knows(&lab, "h2", &hosts[0])?,
        "the worker's masters"
    );

    // The worker that is off learned of h3 and h4 only.
    let lost = ["delon", cluster, "name=h3,h4", "--yes"];
    let loses = lab.kubeon(&lost)?;
    ensure!(loses.code == 2 && loses.err.contains("no master that it knows would stay"), "{loses:?}");
    let majority = lab.kubeon(&[&lost[..], &["--without", &hosts[5]]].concat())?;
    ensure!(majority.code == 2 && majority.err.contains("that is a majority"), "{majority:?}");
    open_connection(&lab, &hosts[2])?;
    lab.must(&["delon", cluster, "h3", "--yes"])?;
    connection_is_open(&lab, "another master left")?;
    lab.is_bare("h3")?;
    ensure!(voters(&lab, "h4")? == names(["h4", "h5"]), "{:?}", voters(&lab, "h4")?);
    println!("  {}", writer::report(&lab)?);
    worker_learns_masters(&lab)?;
    etcd_commands(&lab)?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let nodes = lab.kubectl(cluster, &["get", "nodes", "-o", "name"])?;
    ensure!(nodes == "node/h2\nnode/h4\nnode/h5\nnode/h6\n", "{nodes}");

    // The dead master comes back: nobody knows it any more, and it harms nobody.
    lab.host("start", "h1")?;
    eventually("etcd on h1 has started", MINUTE, || {
        lab.on("h1", "systemctl show -p ExecMainStartTimestampMonotonic --value etcd | grep -v '^0$'")
            .map(drop)
    })?;
    ensure!(voters(&lab, "h4")? == names(["h4", "h5"]), "{:?}", voters(&lab, "h4")?);
    ensure!(lab.plan(cluster)?.is_empty(), "the plan is empty");
    restored_elsewhere(&lab)
}

/// One master becomes three and five, and then three and one again, of which none was there at the beginning. A pod writes all the
/// time, and no acknowledged write is lost.
#[test]
#[ignore = "takes ten minutes: ./test long"]
fn soak_masters_of_a_living_cluster_from_one_to_five_and_back() -> Result<()> {
    let lab = TestLab::up("e2e-five-masters", 6)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["create", cluster, VERSION, "-m", &hosts[0], "-w", &hosts[5]])?;
    lab.must(&["use", cluster])?;
    writer::start(&lab, "five", 400)?;
    let (three, five) = (hosts[1..3].join(","), hosts[3..5].join(","));
    let changes: [(&[&str], &str, &[&str]); 5] = [
        (&["addon", cluster, "-m", &three], "h3", &["h1", "h2", "h3"]),
        (&["addon", cluster, "-m", &five], "h5", &["h1", "h2", "h3", "h4", "h5"]),
        // The first master leaves like any other.
        (&["delon", cluster, "name=h1,h2", "--yes"], "h5", &["h3", "h4", "h5"]),
        (&["delon", cluster, "h3", "--yes"], "h5", &["h4", "h5"]),
        (&["delon", cluster, "h4", "--yes"], "h5", &["h5"]),
    ];
    for (change, host, members) in changes {
        let start = Instant::now();
        lab.must(change)?;
        println!("  {} masters after {:.1} s", members.len(), start.elapsed().as_secs_f64());
        let wanted: BTreeSet<String> = members.iter().map(|name| (*name).to_owned()).collect();
        ensure!(voters(&lab, host)? == wanted, "{:?}", voters(&lab, host)?);
        lab.wait_up_to_date(cluster, MINUTE)?;
    }
    ["h1", "h2", "h3", "h4"].iter().try_for_each(|host| lab.is_bare(host))?;
    let last = lab.kubeon(&["delon", cluster, "h5", "--yes"])?;
    ensure!(last.code == 2 && last.err.contains("no master exists after delete"), "{last:?}");
    println!("  {}", writer::report(&lab)?);
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// The cluster is saved, destroyed, and made out of its snapshot on `h7` and `h8`, which it never had: all objects are there, and
/// Secrets can be read.
fn restored_elsewhere(lab: &TestLab) -> Result<()> {
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.kubectl(cluster, &["create", "secret", "generic", "sealed", "--from-literal=word=kept"])?;
    let count = ["get", "configmaps", "-l", "run=masters", "-o", "name"];
    let before = lab.kubectl(cluster, &count)?.lines().count();
    let file = lab.file("backup.db").display().to_string();
    lab.must(&["etcd", "save", cluster, &file])?;
    let refused = lab.kubeon(&["etcd", "restore", cluster, &file])?;
    ensure!(refused.code == 2 && refused.err.contains("destroy that cluster first"), "{refused:?}");
    lab.must(&["destroy", cluster, "--yes"])?;
    let start = Instant::now();
    lab.must(&["etcd", "restore", cluster, &file, "-m", &hosts[6], "-w", &hosts[7]])?;
    println!("  the cluster was restored in {:.1} s", start.elapsed().as_secs_f64());
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let nodes = lab.kubectl(cluster, &["get", "nodes", "-o", "name"])?;
    ensure!(nodes == "node/h7\nnode/h8\n", "{nodes}");
    let after = lab.kubectl(cluster, &count)?.lines().count();
    ensure!(before > 0 && after == before, "{after} of {before} objects are there");
    let word = lab.kubectl(cluster, &["get", "secret", "sealed", "-o", "jsonpath={.data.word}"])?;
    ensure!(word == "a2VwdA==", "the Secret can be read: {word}");
    let again = lab.kubeon(&["etcd", "restore", cluster, &file])?;
    ensure!(again.code == 2 && again.err.contains("destroy that cluster first"), "{again:?}");
    ensure!(lab.plan(cluster)?.is_empty(), "the plan is empty");
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// Adds two masters. The program is killed while the first of them joins etcd, and the same command continues.
fn join_with_a_kill(lab: &TestLab, masters: &str) -> Result<()> {
    let arguments = ["addon", lab.name(), "-m", masters];
    let mut join = Running::start(lab, &arguments)?;
    join.until("a learner", 3 * MINUTE, |run| run.output().contains("without a vote"))?;
    join.kill()?;
    let start = Instant::now();
    lab.must(&arguments)?;
    println!("  two masters joined {:.1} s after a kill", start.elapsed().as_secs_f64());
    lab.wait_up_to_date(lab.name(), MINUTE)
}

/// The worker that was off while the first master was replaced returns. The service of its timer, which the test does not wait for,
/// adds the new master; the next command also removes those that left.
fn worker_learns_masters(lab: &TestLab) -> Result<()> {
    let (new, gone) = (&lab.addresses[4], &lab.addresses[0]);
    lab.host("start", "h6")?;
    ensure!(!haproxy_knows(lab, "h6", new)?, "h6 was off");
    eventually("h6 has learned the new master", MINUTE, || {
        lab.on("h6", "systemctl start kubeon-renew.service")?;
        ensure!(
            haproxy_knows(lab, "h6", new)?,
            "{}",
            lab.on("h6", "journalctl -u kubeon-renew -n 5 --no-pager")?
        );
        Ok(())
    })?;
    ensure!(haproxy_knows(lab, "h6", gone)?, "only a plan removes masters");
    let timer = lab.on("h6", "systemctl show -p SubState -p TimersMonotonic kubeon-renew.timer")?;
    let every = "OnUnitInactiveUSec=10min";
    ensure!(timer.contains("SubState=waiting") && timer.contains(every), "{timer}");
    lab.must(&["create", lab.name()])?;
    ensure!(haproxy_knows(lab, "h6", new)? && !haproxy_knows(lab, "h6", gone)?, "the masters of h6");
    lab.kubectl(lab.name(), &["uncordon", "h6"])?;
    lab.kubectl(lab.name(), &["wait", "node/h6", "--for=condition=Ready", "--timeout=60s"]).map(drop)
}

/// The commands on etcd: a table of etcdctl, the health of all members, and a snapshot that is complete.
fn etcd_commands(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    let listed = lab.must(&["etcd", cluster, "member", "list", "--write-out=simple"])?;
    ensure!(listed.lines().count() == 2 && listed.contains(" h4,"), "{listed}");
    let health = lab.must(&["etcd", "health", cluster])?;
    ensure!(health.matches("|   true |").count() == 2, "{health}");
    lab.must(&["etcd", "defrag", cluster])?;
    let file = lab.file("snapshot.db").display().to_string();
    lab.must(&["etcd", "save", cluster, &file])?;
    lab.must(&["etcd", "check", cluster, &file])?;
    let whole = std::fs::read(&file)?;
    std::fs::write(&file, &whole[..whole.len() / 2 / 512 * 512 + 32])?;
    let cut = lab.kubeon(&["etcd", "check", cluster, &file])?;
    ensure!(cut.code == 2 && cut.err.contains("is not a complete snapshot"), "{cut:?}");
    full_disk(lab)?;
    a_write_fails(lab, whole.len())?;
    let unknown = lab.kubeon(&["etcd", cluster, "frobnicate"])?;
    ensure!(unknown.code == 1 && unknown.err.contains("unknown command"), "{unknown:?}");
    Ok(())
}

/// A snapshot that does not fit onto the disk of this machine is refused, and leaves nothing.
fn full_disk(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    let small = lab.file("small");
    let (folder, file) = (small.display().to_string(), small.join("snapshot.db").display().to_string());
    std::fs::create_dir_all(&small)?;
    program::must("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", &folder], &[])?;
    let refused = lab.kubeon(&["etcd", "save", cluster, &file]);
    let left = std::fs::read_dir(&small).map(Iterator::count);
    program::must("umount", &[&folder], &[])?;
    let (refused, left) = (refused?, left?);
    ensure!(refused.code == 1 && refused.err.contains("too little space"), "{refused:?}");
    ensure!(left == 0, "{left} files are left of a snapshot");
    Ok(())
}

/// A write of this machine fails in the middle of a snapshot of about this size, as on a disk that became full: nothing of it is left,
/// and an earlier snapshot stays.
fn a_write_fails(lab: &TestLab, bytes: usize) -> Result<()> {
    let folder = lab.file("limited");
    std::fs::create_dir_all(&folder)?;
    let place = folder.join("snapshot.db");
    std::fs::write(&place, "earlier")?;
    let (file, kubeon) =
        (place.display().to_string(), program::folder().join("kubeon").display().to_string());
    // Without the signal, the write that exceeds the limit fails. Shells count blocks of 512 or of 1024 bytes.
    let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", bytes / 4 / 512);
    let own = lab.environment();
    let own: Vec<(&str, &str)> = own.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let save = ["-c", &limited, "sh", &kubeon, "etcd", "save", lab.name(), &file];
    let failed = program::run("sh", &save, &own)?;
    ensure!(failed.code == 1 && failed.err.contains("cannot write"), "{failed:?}");
    let (kept, left) = (std::fs::read(&place)?, std::fs::read_dir(&folder)?.count());
    ensure!(kept == b"earlier" && left == 1, "{left} files, {} bytes", kept.len());
    Ok(())
}

/// The names of the members with a vote, as the member of a host lists them.
fn voters(lab: &TestLab, host: &str) -> Result<BTreeSet<String>> {
    let pki = "/etc/kubernetes/pki/etcd";
    let list = format!(
        "etcdctl --endpoints=https://127.0.0.1:2379 --cacert={pki}/ca.crt --cert={pki}/healthcheck-client.crt \
         --key={pki}/healthcheck-client.key member list -w json"
    );
    let list: Value = serde_json::from_str(&lab.on(host, &list)?)?;
    let members = list["members"].as_array().context("no members")?;
    let voters = members.iter().filter(|member| member["isLearner"] != true);
    Ok(voters.filter_map(|member| member["name"].as_str().map(str::to_owned)).collect())
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// Opens a connection on `h2`, to a master with another address.
fn open_connection(lab: &TestLab, not_to: &str) -> Result<()> {
    std::fs::write(lab.file("connection.py"), ONE_CONNECTION)?;
    let file = lab.file("connection.py").display().to_string();
    lab.must(&["copy", &format!("{}@h2", lab.name()), &file, "/run/connection.py"])?;
    let start = "rm -f /run/answers.txt && systemd-run --unit=connection python3 /run/connection.py";
    lab.on("h2", &format!("{start} {not_to}"))?;
    eventually("the connection is open", MINUTE, || lab.on("h2", "test -s /run/answers.txt").map(drop))
}

/// The masters of haproxy changed without a cut of the connection.
fn connection_is_open(lab: &TestLab, change: &str) -> Result<()> {
    let answers = || -> Result<u32> { Ok(lab.on("h2", "cat /run/answers.txt")?.trim().parse()?) };
    let before = answers()?;
    let log = || lab.on("h2", "journalctl -u connection -n 5 --no-pager").unwrap_or_default();
    eventually("the connection serves", Duration::from_secs(10), || {
        ensure!(answers()? > before, "{}", log());
        Ok(())
    })?;
    println!("  {before} answers over one connection while {change}");
    lab.on("h2", "systemctl stop connection").map(drop)
}

fn haproxy_knows(lab: &TestLab, worker: &str, master: &str) -> Result<bool> {
    let found = lab.on(worker, &format!("grep -c '{master}:6443' /etc/kubernetes/haproxy.cfg || true"))?;
    Ok(found.trim() != "0")
}
