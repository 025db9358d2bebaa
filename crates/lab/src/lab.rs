//! A lab: create, list, and change the power and network of its hosts.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use ipnet::Ipv4Net;

use crate::{
    Error, HostKind, HostState, LabHost, LabName, LabProgress, Leftover, Places, Result, base,
    cgroup::Cgroups,
    disk, down,
    host::{self, CUT, Power},
    leftovers,
    lock::LabLock,
    net, notes, process,
    state::{LabState, make_dir, write},
    subnet, tool, vm,
};

const SCRIPT: &str = include_str!("boot.sh");
const SCRIPT_FILE: &str = "boot.sh";
const KNOWN_HOSTS: &str = "known_hosts";

/// The inputs of [`Lab::up`].
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Folders for state and cache.
    pub places: Places,
    /// Name of the lab.
    pub name: LabName,
    /// Minimum number of hosts, 1 to 200.
    pub hosts: u32,
    /// What the hosts are; `None`: what they are already, in a new lab namespaces.
    pub kind: Option<HostKind>,
}

/// A user account of every host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The superuser.
    Root,
    /// May use sudo without a password.
    Admin,
    /// Must give the lab's password to sudo.
    Operator,
}

impl User {
    /// The login name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }
}

/// A lab that exists.
#[derive(Debug, Clone)]
pub struct Lab {
    name: LabName,
    dir: PathBuf,
    state: LabState,
}

impl Lab {
    /// Creates the lab or completes it: adds missing hosts and boots dead ones; an unplugged cable stays unplugged.
    /// Returns when every host with a plugged cable answers by SSH. Hosts keep running when this process ends.
    ///
    /// `progress` is called from several threads. The error lists every host that failed; the others run.
    pub fn up(options: &LabOptions, progress: &(dyn Fn(LabProgress) + Sync)) -> Result<Self> {
        let hosts = u8::try_from(options.hosts)
            .ok()
            .filter(|n| (1..=subnet::MAX_HOSTS).contains(n))
            .ok_or(Error::HostCount { requested: options.hosts, maximum: subnet::MAX_HOSTS })?;
        check_requirements()?;
        let (places, name) = (&options.places, &options.name);
        let dir = places.lab(name);
        let _lock = lock(name)?;
        refuse_foreign(name, &dir)?;
        let known = LabState::load(&dir)?;
        let kind = HostKind::resolve(name, known.as_ref().map(|state| &state.kind), options.kind.as_ref())?;
        kind.vm().map_or(Ok(()), vm::programs::check)?;
        let base = match &known {
            Some(state) if state.base.exists() => {
                progress(LabProgress::BaseFound);
                state.base.clone()
            }
            Some(state) => {
                return Err(Error::NoBase { lab: name.to_string(), path: state.base.clone() });
            }
            None => match &kind {
                HostKind::Namespaces => base::ensure(places, name, progress)?,
                HostKind::Vm(options) => vm::base::ensure(places, name, options, progress)?,
            },
        };
        make_dir(&dir, 0o700)?;
        make_dir(&dir.join(disk::DISKS), 0o700)?;
        disk::check_place(&dir, "KUBEON_HOME")?;
        disk::check_place(&base, "KUBEON_CACHE")?;
        let new = LabState { version: LabState::VERSION, subnet: Ipv4Net::default(), base, hosts, kind };
        let lab = claim(name, dir, known, new)?;
        if let Some(note) = notes::note(&lab.state.kind, lab.state.hosts) {
            progress(LabProgress::Note(note));
        }
        lab.boot_all(progress)?;
        Ok(lab)
    }

    /// The lab of this name; fails if there is none.
    pub fn open(places: &Places, name: &LabName) -> Result<Self> {
        let dir = places.lab(name);
        let state = LabState::load(&dir)?.ok_or_else(|| Error::NoLab { name: name.to_string() })?;
        Ok(Self { name: name.clone(), dir, state })
    }

    /// Names of all labs in these folders, including labs that a killed command left incomplete.
    pub fn list(places: &Places) -> Result<Vec<LabName>> {
        let entries = match fs::read_dir(&places.labs) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file("list", &places.labs)(error)),
        };
        let mut names: Vec<_> =
            entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Removes all objects of a lab, even if the lab is incomplete. Idempotent.
    ///
    /// Fails with a list of the objects that it could not remove, and refuses a lab of the same name in other [`Places`].
    pub fn down(places: &Places, name: &LabName) -> Result<()> {
        check_requirements()?;
        let _lock = lock(name)?;
        refuse_foreign(name, &places.lab(name))?;
        down::down(places, name)
    }

    /// Everything on the machine that belongs to a lab of this name: processes, mounts, cgroups, link, route, folder.
    /// (Its namespaces end with its processes.) Empty after a [`Lab::down`].
    pub fn leftovers(places: &Places, name: &LabName) -> Result<Vec<Leftover>> {
        leftovers::all(places, name)
    }

    /// The lab's name.
    pub fn name(&self) -> &LabName {
        &self.name
    }

    /// Folder with the lab's state, disks and logs; only root can read it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the hosts are.
    pub fn kind(&self) -> &HostKind {
        &self.state.kind
    }

    /// The subnet, such as `172.30.0.0/24`: the bridge has .1, the machine .2, hosts .11 and on.
    pub fn subnet(&self) -> String {
        self.state.subnet.to_string()
    }

    /// Address of the machine as the hosts see it.
    pub fn machine_address(&self) -> Ipv4Addr {
        subnet::machine(self.state.subnet)
    }

    /// All hosts in order, with their present state.
    pub fn hosts(&self) -> Result<Vec<LabHost>> {
        let cgroups = Cgroups::detect()?;
        let ports = match net::switch(&self.name, &cgroups)? {
            Some(switch) => net::ports(&self.name, switch)?,
            None => std::collections::BTreeMap::new(),
        };
        let observe = |n: u8| {
            let name = host_name(n);
            let state = match (cgroups.is_running(&self.name, &name)?, ports.get(&name)) {
                (false, _) => HostState::Dead,
                (true, Some(true)) => HostState::Running,
                // A host that has just started to boot has no port yet.
                (true, None) if !self.host_dir(&name).join(CUT).exists() => HostState::Running,
                (true, _) => HostState::Cut,
            };
            let address = subnet::host(self.state.subnet, n);
            let options = self.state.kind.vm();
            let cluster_address =
                options.map_or(address, |vm| vm::network::cluster_address(self.state.subnet, vm, n));
            Ok(LabHost { name, address, cluster_address, state })
        };
        (1..=self.state.hosts).map(observe).collect()
    }

    /// Power failure: kills every process of the host; its network and mounts end with them, its disk remains. Idempotent.
    pub fn kill(&self, host: &str) -> Result<()> {
        check_requirements()?;
        self.number(host)?;
        let _lock = lock(&self.name)?;
        let cgroups = Cgroups::detect()?;
        host::off(&self.name, &cgroups, host)?;
        match net::switch(&self.name, &cgroups)? {
            Some(switch) => net::remove_ports(&self.name, switch, host),
            None => Ok(()),
        }
    }

    /// Boots a dead host from the same disk and, unless its cable is unplugged, waits for its SSH. Idempotent.
    pub fn start(&self, host: &str) -> Result<()> {
        check_requirements()?;
        let number = self.number(host)?;
        let lock = lock(&self.name)?;
        let network = self.network()?;
        self.boot(&network, number, Some(lock), &|_| ())
    }

    /// Unplugs the cable of a host: no packet goes in or out, its processes keep running. `kill` and `start` do not plug it
    /// in. Idempotent.
    pub fn cut(&self, host: &str) -> Result<()> {
        self.cable(host, false)
    }

    /// Plugs in the cable of a host. Idempotent.
    pub fn heal(&self, host: &str) -> Result<()> {
        self.cable(host, true)
    }

    /// The command line that logs in on a host with the lab's key; append a command to run it there.
    pub fn ssh_command(&self, host: &str, user: User) -> Result<Vec<String>> {
        let address = self.address(host)?;
        let option = |name: &str, value: String| ["-o".to_owned(), format!("{name}={value}")];
        let mut words = vec!["ssh".to_owned(), "-F".to_owned(), "none".to_owned()];
        words.extend(["-i".to_owned(), self.key_path().display().to_string()]);
        words.extend(option("IdentitiesOnly", "yes".into()));
        words.extend(option("UserKnownHostsFile", self.dir.join(KNOWN_HOSTS).display().to_string()));
        words.extend(option("GlobalKnownHostsFile", "/dev/null".into()));
        words.extend(option("StrictHostKeyChecking", "yes".into()));
        // An emulated processor needs seconds for the handshake.
        let limit = if self.state.kind.is_namespaces() { "5" } else { "30" };
        words.extend(option("ConnectTimeout", limit.into()));
        words.extend(option("LogLevel", "ERROR".into()));
        words.push(format!("{}@{address}", user.name()));
        Ok(words)
    }

    /// Address of a host.
    pub fn address(&self, host: &str) -> Result<Ipv4Addr> {
        Ok(subnet::host(self.state.subnet, self.number(host)?))
    }

    /// Private key of root, admin and operator on every host: OpenSSH format, ed25519, no passphrase.
    pub fn key_path(&self) -> PathBuf {
        self.dir.join(disk::KEY)
    }

    /// File with the password of root, admin and operator, one line.
    pub fn password_path(&self) -> PathBuf {
        self.dir.join(disk::PASSWORD)
    }

    /// Lines for a known_hosts file, one per host, by address.
    pub fn known_hosts(&self) -> Result<String> {
        let line = |n: u8| {
            let upper = self.host_dir(&host_name(n)).join(disk::UPPER);
            let path = upper.join(disk::HOST_KEY).with_extension("pub");
            let key = fs::read_to_string(&path).map_err(Error::file("read", path))?;
            let words: Vec<_> = key.split(' ').take(2).map(str::trim).collect();
            Ok(format!("{} {}\n", subnet::host(self.state.subnet, n), words.join(" ")))
        };
        (1..=self.state.hosts).map(line).collect()
    }

    /// Creates the network and missing disks, then boots dead hosts; all hosts at the same time.
    fn boot_all(&self, progress: &(dyn Fn(LabProgress) + Sync)) -> Result<()> {
        let (network, disks) = thread::scope(|scope| {
            let network = scope.spawn(|| self.network());
            let disks = self.make_disks();
            (joined(network), disks)
        });
        let network = network?;
        disks?;
        write(&self.dir.join(KNOWN_HOSTS), self.known_hosts()?.as_bytes(), 0o644)?;
        let failed = self.each_host(|n| self.boot(&network, n, None, progress));
        if failed.is_empty() { Ok(()) } else { Err(Error::Hosts(failed)) }
    }

    fn make_disks(&self) -> Result<()> {
        if (1..=self.state.hosts).all(|n| self.host_dir(&host_name(n)).exists()) {
            return Ok(());
        }
        let template = disk::template(&self.name, &self.dir, &self.state.base)?;
        let failed = self.each_host(|n| {
            let (host, net, base) = (host_name(n), self.state.subnet, &self.state.base);
            let dir = self.host_dir(&host);
            match &self.state.kind {
                HostKind::Namespaces => disk::ensure(&dir, base, &host, subnet::host(net, n), &template),
                HostKind::Vm(options) => {
                    let nics = vm::network::nics(&self.name, net, options, &host, n);
                    vm::disk::ensure(&dir, base, &host, options, &nics, &template)
                }
            }
        });
        if failed.is_empty() { Ok(()) } else { Err(Error::Hosts(failed)) }
    }

    /// Runs `work` for all hosts in parallel and returns those that failed.
    fn each_host(&self, work: impl Fn(u8) -> Result<()> + Sync) -> Vec<(String, Error)> {
        thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (1..=self.state.hosts).map(|n| (n, scope.spawn(move || work(n)))).collect();
            workers
                .into_iter()
                .filter_map(|(n, worker)| Some((host_name(n), joined(worker).err()?)))
                .collect()
        })
    }

    /// Boots one host and waits for its SSH. Drops `lock` before it waits, so that other commands can use the lab.
    fn boot(
        &self,
        network: &(Cgroups, i32),
        n: u8,
        lock: Option<LabLock>,
        progress: &dyn Fn(LabProgress),
    ) -> Result<()> {
        let (host, begin) = (host_name(n), Instant::now());
        let dir = self.host_dir(&host);
        let power = Power {
            lab: &self.name,
            cgroups: &network.0,
            kind: &self.state.kind,
            base: &self.state.base,
            script: &self.dir.join(SCRIPT_FILE),
            dir: &dir,
            net: self.state.subnet,
            switch: network.1,
        };
        let supervisor = if power.is_on(&host)? {
            None
        } else {
            progress(LabProgress::Booting(host.clone()));
            Some(power.on(&host, n)?)
        };
        drop(lock);
        if dir.join(CUT).exists() {
            if let Some(supervisor) = supervisor {
                supervisor.reap();
            }
            return Ok(());
        }
        power.wait_for_ssh(&host, n, supervisor)?;
        progress(LabProgress::Ready(host, begin.elapsed()));
        Ok(())
    }

    /// Creates the missing objects of the lab's network. Returns the cgroups and the switch's process.
    fn network(&self) -> Result<(Cgroups, i32)> {
        let cgroups = Cgroups::detect()?;
        net::ensure_route(&self.name, self.state.subnet)?;
        let script = self.dir.join(SCRIPT_FILE);
        let switch = net::ensure_switch(&self.name, self.state.subnet, &cgroups, &script)?;
        net::ensure_uplink(&self.name, self.state.subnet, switch, &self.dir)?;
        if let Some(options) = self.state.kind.vm() {
            vm::routing::reserve(&self.name, self.state.subnet, options)?;
            vm::routing::ensure(&self.name, switch, self.state.subnet, options, self.state.hosts)?;
            let addresses = vm::network::gateways(self.state.subnet, options);
            vm::dns::ensure(&self.name, &cgroups, switch, &script, &addresses)?;
        }
        Ok((cgroups, switch))
    }

    fn cable(&self, host: &str, plugged: bool) -> Result<()> {
        check_requirements()?;
        self.number(host)?;
        let _lock = lock(&self.name)?;
        let mark = self.host_dir(host).join(CUT);
        if plugged {
            if mark.exists() {
                fs::remove_file(&mark).map_err(Error::file("remove", mark))?;
            }
        } else {
            write(&mark, b"", 0o600)?;
        }
        let cgroups = Cgroups::detect()?;
        match net::switch(&self.name, &cgroups)? {
            Some(switch) => net::set_ports(&self.name, switch, host, plugged),
            None => Ok(()),
        }
    }

    fn host_dir(&self, host: &str) -> PathBuf {
        self.dir.join(disk::DISKS).join(host)
    }

    fn number(&self, host: &str) -> Result<u8> {
        (1..=self.state.hosts).find(|&n| host_name(n) == host).ok_or_else(|| Error::NoHost {
            lab: self.name.to_string(),
            host: host.to_owned(),
            known: (1..=self.state.hosts).map(host_name).collect(),
        })
    }
}

/// Locks the lab and ends the programs that a killed command left running: they would go on to change the lab.
fn lock(name: &LabName) -> Result<LabLock> {
    let lock = LabLock::lab(name)?;
    process::kill_all(&format!("programs of an earlier command for lab {name}"), || process::tools(name))?;
    Ok(lock)
}

/// Chooses the subnet and the number of hosts, and saves both before anything that depends on them exists. `new` is the
/// state of a lab that does not exist yet, without its subnet.
fn claim(name: &LabName, dir: PathBuf, known: Option<LabState>, new: LabState) -> Result<Lab> {
    let _subnets = LabLock::subnets()?;
    let used = subnet::used(name)?;
    let state = match known {
        Some(state) => {
            if let Some(other) = subnet::conflict(state.subnet, &used) {
                let (lab, subnet) = (name.to_string(), state.subnet.to_string());
                return Err(Error::SubnetTaken { lab, subnet, other: other.what.clone() });
            }
            LabState { hosts: new.hosts.max(state.hosts), ..state }
        }
        None => {
            let inner = new.kind.vm().is_some_and(|vm| vm::network::inner_subnet(new.subnet, vm).is_some());
            LabState { subnet: subnet::choose(name, &used, inner)?, ..new }
        }
    };
    state.save(&dir)?;
    write(&dir.join(SCRIPT_FILE), SCRIPT.as_bytes(), 0o700)?;
    // The route shows the choice to other labs; it must exist before the lock is released.
    net::ensure_route(name, state.subnet)?;
    state.kind.vm().map_or(Ok(()), |vm| vm::routing::reserve(name, state.subnet, vm))?;
    Ok(Lab { name: name.clone(), dir, state })
}

fn joined<T>(worker: thread::ScopedJoinHandle<'_, T>) -> T {
    worker.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

fn host_name(n: u8) -> String {
    format!("h{n}")
}

fn check_requirements() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    tool::check(&[])
}

/// Refuses a lab whose state is in another folder: the names of labs are unique on a machine.
fn refuse_foreign(name: &LabName, dir: &Path) -> Result<()> {
    match net::owner(name)? {
        Some(folder) if folder != Path::new(&net::alias(dir)) && folder.exists() => {
            Err(Error::ForeignLab { name: name.to_string(), folder })
        }
        _ => Ok(()),
    }
}
