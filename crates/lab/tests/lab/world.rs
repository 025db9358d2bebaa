//! Labs of tests, the state of the machine, and commands on hosts.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use kubeon_lab::{HostState, Lab, LabName, LabOptions, Places, User};

/// Name and folder of a test's lab. Removes the lab when dropped, also when the test fails.
pub(crate) struct Scratch {
    pub name: LabName,
    pub places: Places,
    home: PathBuf,
    dir: Option<tempfile::TempDir>,
}

impl Scratch {
    pub(crate) fn new(word: &str) -> Self {
        Self::named(format!("t-{word}-{}", std::process::id()).parse().unwrap())
    }

    pub(crate) fn named(name: LabName) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let home = dir.path().join("home");
        let mut scratch = Self::at(name, home);
        scratch.dir = Some(dir);
        scratch
    }

    pub(crate) fn at(name: LabName, home: PathBuf) -> Self {
        let cache = std::env::var_os("KUBEON_CACHE").map(PathBuf::from).unwrap_or_else(|| {
            let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            xdg.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"))
                .join("kubeon")
        });
        Self { name, places: Places::new(&home, &cache), home, dir: None }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn options(&self, hosts: u32) -> LabOptions {
        LabOptions { places: self.places.clone(), name: self.name.clone(), hosts, kind: None }
    }

    pub(crate) fn up(&self, hosts: u32) -> Lab {
        Lab::up(&self.options(hosts), &|_| ()).unwrap()
    }

    pub(crate) fn down(&self) {
        Lab::down(&self.places, &self.name).unwrap();
        assert_eq!(Lab::leftovers(&self.places, &self.name).unwrap(), []);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.dir.is_some() {
            let _ = Lab::down(&self.places, &self.name);
        }
    }
}

/// Mounts, links, routes and rules of the machine, read without the library.
pub(crate) struct MachineState {
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
    routes: BTreeSet<String>,
    rules: BTreeSet<String>,
}

impl MachineState {
    pub(crate) fn now() -> Self {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts =
            mountinfo.lines().map(|line| line.split(' ').skip(3).collect::<Vec<_>>().join(" ")).collect();
        let links =
            fs::read_dir("/sys/class/net").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        Self {
            mounts,
            links: links.filter(|link| !link.starts_with("kl")).collect(),
            routes: lines(&["route", "show", "table", "all"]),
            rules: lines(&["rule", "show"]),
        }
    }

    /// Fails if an object was added or removed, or if an object with the lab's name exists.
    pub(crate) fn assert_unchanged(&self, scratch: &Scratch) {
        let now = Self::now();
        assert_eq!(now.mounts, self.mounts);
        assert_eq!(now.links, self.links);
        assert_eq!(now.routes, self.routes);
        assert_eq!(now.rules, self.rules);
        let name = scratch.name.as_str();
        assert_eq!(cgroups(Path::new("/sys/fs/cgroup"), name), Vec::<PathBuf>::new());
        assert_eq!(processes(name), Vec::<String>::new());
        assert!(!scratch.home().exists(), "{} is still there", scratch.home().display());
        assert!(!Path::new("/run/netns").join(name).exists());
    }
}

/// Output lines of `ip`, without the lines of other labs, which may start and end at the same time.
fn lines(args: &[&str]) -> BTreeSet<String> {
    let output = Command::new("ip").args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // `ip` names a link that is being removed by its number.
    let other_lab = |line: &str| {
        [" dev kl", " dev if"].iter().any(|link| line.contains(link)) || line.starts_with("unreachable 172.")
    };
    text.lines().map(str::trim).filter(|line| !other_lab(line)).map(str::to_owned).collect()
}

fn cgroups(dir: &Path, name: &str) -> Vec<PathBuf> {
    let below =
        fs::read_dir(dir).into_iter().flatten().flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    let mut found = Vec::new();
    for child in below.map(|entry| entry.path()) {
        if child.to_string_lossy().contains(name) {
            found.push(child);
        } else {
            found.extend(cgroups(&child, name));
        }
    }
    found
}

/// Processes with the name in their arguments, environment or cgroup; without this test and its parents.
fn processes(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // A process that has ended but is not yet reaped by init does not count.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if pid == std::process::id() || stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
            continue;
        }
        for file in ["cmdline", "environ", "cgroup"] {
            let text = fs::read(entry.path().join(file)).unwrap_or_default();
            if String::from_utf8_lossy(&text).contains(name) {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found
                    .push(format!("{pid} {} (by {file})", String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
    }
    found
}

/// Output of a command on a host; the whole output as error when the command fails.
pub(crate) fn ssh(lab: &Lab, host: &str, user: User, command: &str) -> Result<String, String> {
    let words = lab.ssh_command(host, user).unwrap();
    let limit = if lab.kind().vm().is_some() { 30 } else { 2 };
    output_text(
        Command::new(&words[0])
            .args(["-o", &format!("ConnectTimeout={limit}"), "-o", "BatchMode=yes"])
            .args(&words[1..])
            .arg(command)
            .output(),
    )
}

/// The same with the lab's password instead of its key.
pub(crate) fn ssh_by_password(lab: &Lab, host: &str, user: User, command: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let askpass = dir.path().join("askpass");
    fs::write(&askpass, format!("#!/bin/sh\ncat {}\n", lab.password_path().display())).unwrap();
    fs::set_permissions(&askpass, fs::Permissions::from_mode(0o700)).unwrap();
    let words = lab.ssh_command(host, user).unwrap();
    output_text(
        Command::new(&words[0])
            .args(["-o", "PubkeyAuthentication=no", "-o", "PreferredAuthentications=password"])
            .args(&words[1..])
            .arg(command)
            .env("SSH_ASKPASS", &askpass)
            .env("SSH_ASKPASS_REQUIRE", "force")
            .output(),
    )
}

fn output_text(output: std::io::Result<Output>) -> Result<String, String> {
    let output = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text([output.stdout, output.stderr].concat()))
    }
}

/// Addresses that this machine has outside the lab.
pub(crate) fn own_addresses(lab: &Lab) -> Vec<String> {
    let output = Command::new("hostname").arg("-I").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let own = lab.machine_address().to_string();
    text.split_whitespace()
        .filter(|a| a.contains('.') && *a != own && !a.starts_with("172."))
        .map(str::to_owned)
        .collect()
}

pub(crate) fn states(lab: &Lab) -> Vec<HostState> {
    lab.hosts().unwrap().into_iter().map(|host| host.state).collect()
}

/// Waits for a condition, 90 s at most: other tests boot hosts at the same time.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(90), "{what}: not within 90 s");
        thread::sleep(Duration::from_millis(50));
    }
}
