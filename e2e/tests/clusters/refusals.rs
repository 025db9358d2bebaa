//! Invalid input with real hosts: `kubeon` reports one clear error before the first change.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::{Answer, must};
use kubeon_e2e::running::Running;

/// Checks a refusal: exit code 2, an empty standard output, and these texts in the error.
fn check_refused(what: &str, answer: &Answer, texts: &[&str]) -> Result<()> {
    ensure!(answer.code == 2 && answer.out.is_empty(), "{what}: {answer:?}");
    ensure!(answer.err.contains("error: "), "{what}: {}", answer.err);
    for text in texts {
        ensure!(answer.err.contains(text), "{what}: {text:?} is missing in\n{}", answer.err);
    }
    Ok(())
}

/// Checks that no host has files of kubeon.
fn check_unchanged(lab: &TestLab, hosts: &[&str]) -> Result<()> {
    for host in hosts {
        lab.on(host, "test ! -e /var/lib/kubeon && test ! -e /etc/kubernetes")
            .with_context(|| format!("{host} was changed"))?;
    }
    Ok(())
}

fn with<'a>(mut arguments: Vec<&'a str>, more: &[&'a str]) -> Vec<&'a str> {
    arguments.extend(more);
    arguments
}

#[test]
fn invalid_input_is_refused_before_the_first_change() -> Result<()> {
    let lab = TestLab::up("e2e-refuse", 3)?;
    invalid_logins(&lab)?;
    damaged_bundle(&lab)?;
    bundle_of_a_stranger(&lab)?;
    silent_name_server(&lab)?;
    check_unchanged(&lab, &["h1", "h2", "h3"])?;
    dead_worker(&lab)?;
    host_of_another_cluster(&lab)?;
    up_to_date_cluster_is_not_changed(&lab)?;
    truncated_state_file(&lab)?;
    changed_host_key(&lab)
}

fn invalid_logins(lab: &TestLab) -> Result<()> {
    let create = lab.create("refuse", 1);
    let (wrong, password) = (lab.file("wrong-key"), lab.file("password"));
    let (wrong, at_password) = (text(&wrong), format!("@{}", password.display()));
    must("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", wrong], &[])?;
    fs::write(&password, "not the password\n")?;
    let cases: [(&str, &[&str], &[&str]); 4] = [
        ("a wrong key", &["--default-pk-file", wrong], &["refused the login"]),
        ("a missing key", &["--default-pk-file", "/nowhere/key"], &["/nowhere/key"]),
        (
            "a wrong password",
            &["--default-user", "operator", "--default-passwd", &at_password],
            &["refused the login of operator"],
        ),
        ("a closed port", &["--default-port", "2222"], &["2222", "connection refused"]),
    ];
    for (what, flags, texts) in cases {
        check_refused(what, &lab.kubeon(&with(create.clone(), flags))?, texts)?;
    }
    Ok(())
}

/// The only name server of a host answers nothing.
fn silent_name_server(lab: &TestLab) -> Result<()> {
    lab.on("h2", "cat /etc/resolv.conf >/run/own && echo 'nameserver 192.0.2.53' >/etc/resolv.conf")?;
    let answer = lab.kubeon(&lab.create("refuse", 1))?;
    lab.on("h2", "cat /run/own >/etc/resolv.conf")?;
    check_refused("a silent name server", &answer, &["192.0.2.53", "--ignore dns"])
}

/// Copies the bundle into a folder of bundles. Returns the copy.
pub(crate) fn copy_of_the_bundle(lab: &TestLab, folder: &str) -> Result<PathBuf> {
    let listed: serde_json::Value = serde_json::from_str(&lab.must(&["bundle", "ls", "-o", "json"])?)?;
    let bundles = listed.as_array().context("no list")?;
    let found = bundles.iter().find(|bundle| bundle["version"] == VERSION);
    let original =
        PathBuf::from(found.and_then(|bundle| bundle["folder"].as_str()).context("the bundle is not built")?);
    let folder = lab.file(folder);
    let copy = folder.join(original.file_name().context("the bundle has no name")?);
    fs::create_dir_all(&folder)?;
    must("cp", &["-r", "--reflink=auto", text(&original), text(&copy)], &[])?;
    Ok(copy)
}

/// Flips one bit of one part of the bundle, which every node needs.
fn damaged_bundle(lab: &TestLab) -> Result<()> {
    let copy = copy_of_the_bundle(lab, "bundles")?;
    let folder = lab.file("bundles");
    flip_a_bit(&part(&copy, "kubelet")?)?;
    let environment = [("KUBEON_BUNDLES", text(&folder))];
    let answer = lab.kubeon_with(&lab.create("refuse", 1), &environment)?;
    check_refused("a flipped bit", &answer, &["is damaged", "SHA-256", "kubeon bundle build"])?;
    Ok(fs::remove_dir_all(&folder)?)
}

/// As soon as a key is trusted, a bundle that it did not sign is refused. A signed bundle crosses the gap as one file.
fn bundle_of_a_stranger(lab: &TestLab) -> Result<()> {
    let create = with(lab.create("refuse", 1), &["--dry-run"]);
    let copy = copy_of_the_bundle(lab, "signed-bundles")?;
    let folder = lab.file("signed-bundles");
    let bundles = [("KUBEON_BUNDLES", text(&folder))];
    let (mine, strange, archive) = (lab.file("mine"), lab.file("strange"), lab.file("bundle.tar"));
    for key in [&mine, &strange] {
        must("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", text(key)], &[])?;
    }
    let good = |arguments: &[&str]| -> Result<Answer> {
        let answer = lab.kubeon_with(arguments, &bundles)?;
        ensure!(answer.code == 0, "{arguments:?}: {answer:?}");
        Ok(answer)
    };
    good(&["bundle", "trust", text(&mine.with_extension("pub"))])?;
    let words = ["is not signed by a trusted key", "kubeon bundle sign"];
    check_refused("an unsigned bundle", &lab.kubeon_with(&create, &bundles)?, &words)?;
    good(&["bundle", "sign", VERSION, "--key", text(&strange)])?;
    check_refused("a bundle of a stranger", &lab.kubeon_with(&create, &bundles)?, &words)?;
    good(&["bundle", "sign", VERSION, "--key", text(&mine)])?;
    good(&create)?;
    good(&["bundle", "save", VERSION, text(&archive)])?;
    fs::remove_dir_all(&copy)?;
    good(&["bundle", "load", text(&archive)])?;
    let verified = good(&["bundle", "verify", VERSION])?;
    ensure!(verified.out.contains("signed by release"), "{verified:?}");
    good(&create)?;
    // As in a Job, which has no file of trusted keys.
    fs::remove_file(lab.file("allowed_signers"))?;
    let other = format!("other {}", fs::read_to_string(strange.with_extension("pub"))?);
    let trusting = [bundles[0], ("KUBEON_TRUSTED_KEYS", other.as_str())];
    check_refused("a bundle of another key", &lab.kubeon_with(&create, &trusting)?, &words)?;
    fs::remove_file(&archive)?;
    Ok(fs::remove_dir_all(&folder)?)
}

/// The blob of a part.
fn part(bundle: &Path, name: &str) -> Result<PathBuf> {
    let blob = |digest: &serde_json::Value| -> Result<PathBuf> {
        let digest = digest.as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        Ok(bundle.join("blobs/sha256").join(digest.context("no digest")?))
    };
    let read = |path: &Path| -> Result<serde_json::Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let index = read(&bundle.join("index.json"))?;
    let manifest = read(&blob(&index["manifests"][0]["digest"])?)?;
    let layers = manifest["layers"].as_array().context("no layers")?;
    let found = layers.iter().find(|layer| layer["annotations"]["org.opencontainers.image.title"] == name);
    blob(&found.with_context(|| format!("the bundle has no {name}"))?["digest"])
}

fn flip_a_bit(file: &Path) -> Result<()> {
    let mut bytes = fs::read(file)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    Ok(fs::write(file, bytes)?)
}

/// `create` reports a dead worker within the time limit and offers to continue without it. During `create`, a
/// second command is refused. The user is not root.
fn dead_worker(lab: &TestLab) -> Result<()> {
    lab.host("kill", "h3")?;
    let user = ["--default-user", "admin"];
    let create = with(lab.create("refuse", 1), &user);
    let start = Instant::now();
    let answer = lab.kubeon(&create)?;
    check_refused("a dead worker", &answer, &[&lab.addresses[2], "--without"])?;
    ensure!(start.elapsed() < Duration::from_secs(30), "reported after {:?}", start.elapsed());
    check_unchanged(lab, &["h1", "h2"])?;
    let create = with(create, &["--without", &lab.addresses[2]]);
    let mut first = Running::start(lab, &create)?;
    let (lock, holder) = (lab.file("lock/refuse"), format!("\"pid\":{},", first.pid()));
    first.until("create has the lock", Duration::from_secs(30), |_| {
        fs::read_to_string(&lock).is_ok_and(|text| text.contains(&holder))
    })?;
    let second = lab.kubeon(&create)?;
    first.ensure_running()?;
    let locked = format!("refuse is locked by \"kubeon create\" (pid {} on ", first.pid());
    check_refused("a second create", &second, &[&locked])?;
    let created = first.wait(Duration::from_secs(300))?;
    ensure!(created.code == 0, "create without the dead worker failed: {created:?}");
    for host in ["h1", "h2"] {
        let logins =
            lab.on(host, "journalctl -q --no-pager _COMM=sshd | grep -c 'Accepted .* for admin '")?;
        ensure!(
            (1..=3).contains(&logins.trim().parse::<u32>()?),
            "{host} had {logins} logins of three commands"
        );
    }
    lab.host("start", "h3")
}

fn host_of_another_cluster(lab: &TestLab) -> Result<()> {
    let create = ["create", "other", VERSION, "-m", &lab.addresses[1]];
    check_refused("a host of another cluster", &lab.kubeon(&create)?, &[&lab.addresses[1], "refuse"])
}

/// A repeated `create` writes no file.
fn up_to_date_cluster_is_not_changed(lab: &TestLab) -> Result<()> {
    lab.must(&lab.create("refuse", 1))?;
    lab.wait_up_to_date("refuse", Duration::from_secs(60))?;
    for host in ["h1", "h2", "h3"] {
        lab.on(host, "touch /run/mark")?;
    }
    let created = lab.must(&["create", "refuse"])?;
    for host in ["h1", "h2", "h3"] {
        let find = "find /etc /usr /opt /var/lib/kubeon /var/lib/kubelet/config.yaml -newer /run/mark";
        let written = lab.on(host, find)?;
        ensure!(written.trim().is_empty(), "files on {host} were written: {written}\n{created}");
    }
    Ok(())
}

fn truncated_state_file(lab: &TestLab) -> Result<()> {
    let path = lab.file("refuse.json");
    let complete = fs::read(&path).context("cannot read the state file")?;
    let half = &complete[..complete.len() / 2];
    fs::write(&path, half)?;
    let answer = lab.kubeon(&["plan", "refuse"])?;
    ensure!(answer.code != 0 && answer.err.contains(text(&path)), "truncated state file: {answer:?}");
    ensure!(fs::read(&path)? == half, "an unreadable state file must not be replaced");
    Ok(fs::write(&path, complete)?)
}

/// The lab reads the key from a host's disk, so the host gets a key at another path.
fn changed_host_key(lab: &TestLab) -> Result<()> {
    let other = "ssh-keygen -q -t ed25519 -N '' -f /root/other && \
                 sed -i '/^HostKey/d' /etc/ssh/sshd_config /etc/ssh/sshd_config.d/*; \
                 echo 'HostKey /root/other' >>/etc/ssh/sshd_config && systemctl restart ssh";
    lab.on("h2", other)?;
    let answer = lab.kubeon(&["create", "refuse"])?;
    check_refused("a changed host key", &answer, &[&lab.addresses[1], "host key"])
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
