//! Commands, probes and copies over a real sshd.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use crate::support::{CollectedOutput, Sshd, host, sh};
use kubeon_link_host::{Command, CommandInput, Copy, Exit, SshHosts};
use kubeon_ports::ProbeHost;
use kubeon_wire::Category;

async fn output_of(pool: &SshHosts, command: Command) -> (Exit, String, String) {
    let collected = CollectedOutput::default();
    let exit = pool.exec(host(), command, &|stream, bytes| collected.collect(stream, bytes)).await.unwrap();
    (exit, collected.out(), collected.err())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_separate_streams_and_an_exit_code() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let (exit, out, err) = output_of(&pool, Command::new("echo out; echo err >&2; exit 3")).await;
    assert_eq!((exit, out.as_str(), err.as_str()), (Exit::Code(3), "out\n", "err\n"));
    let (exit, ..) = output_of(&pool, Command::new("kill -KILL $$")).await;
    assert_eq!(exit, Exit::Signal("KILL".into()));
    let (exit, ..) = output_of(&pool, Command::new("no-such-program")).await;
    assert_eq!(exit, Exit::Code(127));
    let odd = "printf '%s|' 'a b' \"$HOME\" \"it's\"";
    let (_, out, _) = output_of(&pool, Command::new(odd)).await;
    assert_eq!(out, "a b|/root|it's|", "the host's shell interprets the line");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reads_only_its_input() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let (exit, out, _) = output_of(&pool, Command::new("cat")).await;
    assert_eq!((exit, out.as_str()), (Exit::Code(0), ""), "cat ends at once");
    let input = CommandInput::Bytes(b"x\n".repeat(500_000));
    let (_, out, _) = output_of(&pool, Command { input, ..Command::new("wc -l") }).await;
    assert_eq!(out.trim(), "500000");
    let input = CommandInput::Bytes(vec![0; 50_000_000]);
    let (exit, ..) =
        output_of(&pool, Command { input, ..Command::new("head -c 10 >/dev/null; exit 4") }).await;
    assert_eq!(exit, Exit::Code(4), "a command need not read all of its input");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_arrives_whole() {
    let sshd = Sshd::start();
    let (_, out, _) = output_of(&sshd.hosts(), Command::new("seq 1 3000000")).await;
    assert_eq!(out.lines().count(), 3_000_000);
    assert!(out.ends_with("2999999\n3000000\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_exists_only_when_requested() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let line = "tty -s && echo yes || echo no";
    assert_eq!(output_of(&pool, Command::new(line)).await.1, "no\n");
    assert_eq!(output_of(&pool, Command { pty: true, ..Command::new(line) }).await.1, "yes\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_ended_with_its_children_at_the_time_limit() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    for pty in [false, true] {
        let start = Instant::now();
        let command = Command {
            timeout: Some(Duration::from_millis(500)),
            pty,
            ..Command::new("echo started; sleep 4711 & sleep 4711; wait")
        };
        let failure = pool.exec(host(), command, &|_, _| {}).await.unwrap_err();
        assert_eq!(failure.category, Category::Timeout);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let (exit, out, _) = output_of(&pool, Command::new("pgrep -f 'sleep 471[1]'")).await;
        assert_eq!((exit, out.as_str()), (Exit::Code(1), ""), "pty: {pty}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_command_is_ended() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let collected = CollectedOutput::default();
    let collect = |stream, bytes: &[u8]| collected.collect(stream, bytes);
    let running =
        pool.exec(host(), Command::new("trap '' TERM; echo started; sleep 4712 & wait; wait"), &collect);
    let started = async {
        while collected.out() != "started\n" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = running => panic!("{ended:?}"),
        result = tokio::time::timeout(Duration::from_secs(30), started) => result.expect("the command starts"),
    }
    let start = Instant::now();
    loop {
        let (exit, ..) = output_of(&pool, Command::new("pgrep -f 'sleep 471[2]'")).await;
        if exit == Exit::Code(1) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "it still runs");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_reports_facts_and_stores_nothing() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let start = Instant::now();
    let facts = pool.facts(host()).await.unwrap();
    eprintln!("first probe, with the login: {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(pool.facts(host()).await.unwrap().kernel, facts.kernel);
    eprintln!("second probe: {:?}\n{facts:#?}", start.elapsed());
    assert_eq!(facts.kernel, sh("uname -r"));
    assert!(facts.is_root && facts.claim.is_none() && facts.node_program.is_none());
    assert!(facts.clock_offset_seconds.abs() <= 1);
    let (_, out, _) = output_of(&pool, Command::new("ls -A /var/lib")).await;
    assert_eq!(out, "");
    assert_eq!(sshd.logins(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_finds_other_clusters_and_the_files_of_kubeon() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    output_of(&pool, Command::new("mkdir -p /var/lib/etcd/member /var/lib/rancher")).await;
    let facts = pool.facts(host()).await.unwrap();
    assert_eq!(facts.foreign, ["/var/lib/etcd/member", "/var/lib/rancher"]);
    let before = facts.own_services;
    let plant = "set -e; mount -t tmpfs none /usr/local/lib; mkdir -p /usr/local/lib/systemd/system; \
                 cd /usr/local/lib/systemd/system; echo '[Service]' > containerd.service; \
                 echo '# Written by kubeon. Changes are replaced.' > kubelet.service; \
                 mount -t tmpfs none /usr/local/bin; echo mine > /usr/local/bin/kubectl; \
                 ln -s /opt/missing /usr/local/bin/etcdctl; ln -s /var/lib/kubeon/current/x/bin/ctr /usr/local/bin/ctr; \
                 cp \"$(command -v sleep)\" /run/haproxy; setsid /run/haproxy 60 < /dev/null > /dev/null 2>&1 & :";
    let (exit, _, err) = output_of(&pool, Command::new(plant)).await;
    assert!(exit.success(), "{err}");
    let start = Instant::now();
    let facts = loop {
        let facts = pool.facts(host()).await.unwrap();
        if facts.own_services.iter().any(|name| name == "haproxy") {
            break facts;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", facts.own_services);
    };
    let lists = |services: &[String], name: &str| services.iter().any(|service| service == name);
    assert!(lists(&facts.own_services, "containerd"), "{:?}", facts.own_services);
    assert_eq!(
        lists(&facts.own_services, "kubelet"),
        lists(&before, "kubelet"),
        "a unit of kubeon is not the host's own"
    );
    assert_eq!(
        facts.own_programs,
        ["etcdctl", "kubectl"],
        "links into the folder of kubeon are not the owner's"
    );
    let digest = "ab".repeat(32);
    let claim = r#"{"cluster":"demo","uid":"u\\n","generation":3,"version":"v1.36.3","role":"master"}"#;
    let program = format!("#!/bin/sh\\necho '{{\"claim\":{claim},\"parts\":[\"{digest}\"]}}'");
    let plant = format!(
        "set -e; cd /var/lib; mkdir -p kubeon/node; printf '%s' '{claim}' > kubeon/claim.json; cd kubeon/node; \
         printf '#!/bin/sh\\n[ \"$1\" = facts ] && cat <<E\\n{{\"claim\":{claim},\"parts\":[\"{digest}\"]}}\\nE\\n' > kubeon-node-{digest}; \
         chmod +x kubeon-node-{digest}; ln -s kubeon-node-{digest} current"
    );
    assert!(program.contains("claim"));
    let (exit, _, err) = output_of(&pool, Command::new(plant)).await;
    assert!(exit.success(), "{err}");
    let facts = pool.facts(host()).await.unwrap();
    assert_eq!(facts.foreign, Vec::<String>::new(), "a claimed host is not foreign");
    assert_eq!(facts.own_services, Vec::<String>::new(), "its services are not the host's own");
    assert_eq!(facts.own_programs, Vec::<String>::new());
    assert_eq!(facts.claim.unwrap().generation, 3);
    assert_eq!(facts.parts[0].as_str(), digest);
    assert_eq!(facts.node_program.unwrap().as_str(), digest);
    output_of(&pool, Command::new("printf '#!/bin/sh\\nexit 1\\n' > /var/lib/kubeon/node/current")).await;
    let failure = pool.facts(host()).await.unwrap_err();
    assert!(failure.to_string().contains("node/current"), "{failure}");
}

async fn copy(pool: &SshHosts, source: &std::path::Path, destination: &str) -> Result<String, String> {
    let copy = Copy { source: source.to_owned(), destination: destination.into() };
    pool.copy(host(), &copy, &|_, _| {}).await.map(|copied| copied.path).map_err(|f| f.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_copied_with_its_mode_to_where_cp_would_put_it() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let source = sshd.path("tool");
    fs::write(&source, "#!/bin/sh\necho works\n").unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(copy(&pool, &source, "/var/lib/a b/c").await.unwrap(), "/var/lib/a b/c");
    assert_eq!(copy(&pool, &source, "/var/lib/a b").await.unwrap(), "/var/lib/a b/tool");
    assert_eq!(copy(&pool, &source, "/var/lib/new/").await.unwrap(), "/var/lib/new/tool");
    assert_eq!(copy(&pool, &source, "/var/lib/new/tool").await.unwrap(), "/var/lib/new/tool");
    let (_, out, err) = output_of(
        &pool,
        Command::new("stat -c '%a %U' '/var/lib/a b/c'; /var/lib/new/tool; find /var/lib -name '.kube*'"),
    )
    .await;
    assert_eq!((out.as_str(), err.as_str()), ("750 root\nworks\n", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_copied_whole_and_merged() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let source = sshd.path("tree");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::create_dir_all(source.join("empty")).unwrap();
    for (name, text) in
        [("a", "1"), ("deep/er/back\\slash", "2"), ("deep/new\nline", "3"), ("-n", "4"), ("sums", "5")]
    {
        fs::write(source.join(name), text).unwrap();
    }
    fs::write(source.join("x".repeat(200)), "long").unwrap();
    symlink("../a", source.join("deep/link")).unwrap();
    assert_eq!(copy(&pool, &source, "/var/lib/t").await.unwrap(), "/var/lib/t");
    output_of(
        &pool,
        Command::new("echo kept > /var/lib/t/own; echo old > /var/lib/t/a; mkdir /var/lib/into"),
    )
    .await;
    assert_eq!(copy(&pool, &source, "/var/lib/into").await.unwrap(), "/var/lib/into/tree");
    let sums = "find . -type f ! -name own -exec sha256sum {} + | sort; find . -type l -printf '%p %l\\n'; find . -type d | sort";
    let local = sh(&format!("cd '{}' && {sums}", source.display()));
    let (_, out, _) = output_of(&pool, Command::new(format!("cd /var/lib/into/tree && {sums}"))).await;
    assert_eq!(out.trim(), local);
    fs::rename(&source, sshd.path("t")).unwrap();
    assert_eq!(copy(&pool, &sshd.path("t"), "/var/lib").await.unwrap(), "/var/lib/t");
    let (_, out, _) = output_of(&pool, Command::new(format!("cd /var/lib/t && {sums}; cat own"))).await;
    assert_eq!(out.trim(), format!("{local}\nkept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_copy_reports_the_cause_and_changes_nothing() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let missing = copy(&pool, &sshd.path("missing"), "/var/lib/x").await.unwrap_err();
    assert!(missing.contains("missing") && missing.contains("No such file"), "{missing}");
    let tree = sshd.path("tree");
    fs::create_dir_all(&tree).unwrap();
    sh(&format!("mkfifo '{}/pipe'", tree.display()));
    let odd = copy(&pool, &tree, "/var/lib/x").await.unwrap_err();
    assert!(odd.contains("neither file, folder nor link"), "{odd}");
    fs::remove_file(tree.join("pipe")).unwrap();
    output_of(&pool, Command::new("echo kept > /var/lib/x")).await;
    let kind = copy(&pool, &tree, "/var/lib/x").await.unwrap_err();
    assert!(kind.contains("/var/lib/x is not a folder"), "{kind}");
    output_of(&pool, Command::new("mkdir /var/lib/small && mount -t tmpfs -o size=1m none /var/lib/small && echo kept > /var/lib/small/x")).await;
    fs::write(sshd.path("big"), vec![1; 4 << 20]).unwrap();
    let copy_big = Copy { source: sshd.path("big"), destination: "/var/lib/small/x".into() };
    let full = pool.copy(host(), &copy_big, &|_, _| {}).await.unwrap_err();
    assert_eq!(full.category, Category::Exhausted, "{full} {:?}", full.log);
    let (_, out, _) =
        output_of(&pool, Command::new("cat /var/lib/x /var/lib/small/x; ls -A /var/lib/small")).await;
    assert_eq!(out, "kept\nkept\nx\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_changed_in_transit_are_refused() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let source = sshd.path("file");
    fs::write(&source, "content").unwrap();
    // The tar of this host changes the unpacked file.
    let spoil = "mkdir /run/bin; printf '#!/bin/sh\\n/bin/tar \"$@\" && for d; do :; done; echo bad >> \"$d/data\"\\n' > /run/bin/tar; \
                 chmod +x /run/bin/tar; mount --bind /run/bin/tar $(command -v tar)";
    let spoil = spoil
        .replace("/bin/tar \"$@\"", "/run/bin/real \"$@\"")
        .replace("mount", "cp $(command -v tar) /run/bin/real; mount");
    let (exit, _, err) = output_of(&pool, Command::new(spoil)).await;
    assert!(exit.success(), "{err}");
    let copy = Copy { source, destination: "/var/lib/x".into() };
    let failure = pool.copy(host(), &copy, &|_, _| {}).await.unwrap_err();
    assert_eq!(failure.category, Category::Corrupt, "{failure} {:?}", failure.log);
    assert_eq!(output_of(&pool, Command::new("ls -A /var/lib")).await.1, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_copy_is_fast_and_reports_progress() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let source = sshd.path("big");
    let size: usize = 256 << 20;
    fs::write(&source, vec![7; size]).unwrap();
    pool.exec(host(), Command::new("true"), &|_, _| {}).await.unwrap();
    let progress = parking_lot::Mutex::new(Vec::new());
    let start = Instant::now();
    let copy = Copy { source, destination: "/var/lib/big".into() };
    let copied = pool.copy(host(), &copy, &|done, total| progress.lock().push((done, total))).await.unwrap();
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("copy: 256 MiB in {seconds:.2} s, {:.0} MiB/s, checksums included", 256.0 / seconds);
    assert_eq!(copied.bytes, size as u64);
    let progress = progress.into_inner();
    assert!(progress.is_sorted() && progress.last() == Some(&(size as u64, size as u64)), "{progress:?}");
}
