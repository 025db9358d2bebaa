//! One host: powers it on and off and waits until it answers by SSH.

use std::{
    fs,
    io::Read as _,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use kubeon_process::BackgroundProgram;

use crate::{
    Error, HostKind, LabName, Result, VmOptions,
    cgroup::Cgroups,
    net, process, subnet,
    vm::{network, qemu},
};

/// Time limit from power on to an answer by SSH: ten times what a busy machine with two cores needs.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limits for one try: to connect, and to get the first bytes from sshd.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
const BANNER_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for a virtual machine, whose processor may be emulated. A try that is given up costs the guest a process.
const VM_BOOT_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const VM_BANNER_TIMEOUT: Duration = Duration::from_secs(30);

/// A host of a lab, as [`Lab::hosts`](crate::Lab::hosts) observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabHost {
    /// `h1` to `hN`.
    pub name: String,
    /// The address to log in to, the same after every boot.
    pub address: Ipv4Addr,
    /// The address that the host owns and that other hosts reach; usually the same.
    pub cluster_address: Ipv4Addr,
    /// Whether it has power and network.
    pub state: HostState,
}

/// Whether a host has power and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    /// Has power and network; it may still be booting.
    Running,
    /// Has no power: killed, shut down from inside, or not booted since the machine booted.
    Dead,
    /// Has power, but no network: its cable is unplugged.
    Cut,
}

impl std::fmt::Display for HostState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Running => "Running",
            Self::Dead => "Dead",
            Self::Cut => "Cut",
        })
    }
}

/// The data needed to power a host on.
pub(crate) struct Power<'a> {
    pub lab: &'a LabName,
    pub cgroups: &'a Cgroups,
    pub kind: &'a HostKind,
    pub base: &'a Path,
    pub script: &'a Path,
    pub dir: &'a Path,
    pub net: ipnet::Ipv4Net,
    pub switch: i32,
}

/// File in a host's folder that marks the cable as unplugged. A power failure does not change it.
pub(crate) const CUT: &str = "cut";
/// Environment variable of boot.sh.
const SWITCH_VARIABLE: &str = "LAB_SWITCH";
const CONSOLE: &str = "console.log";

impl Power<'_> {
    /// Whether the host runs, connected to the present switch. A host loses its network with the switch that it was booted for.
    pub(crate) fn is_on(&self, name: &str) -> Result<bool> {
        let switch = format!("{SWITCH_VARIABLE}={}", net::namespace(self.switch)).into_bytes();
        let supervisors = self.cgroups.processes(self.lab, name, "supervisor")?;
        let connected =
            supervisors.into_iter().any(|pid| process::has_variable(pid, |variable| variable == switch));
        Ok(connected && self.cgroups.is_running(self.lab, name)?)
    }

    /// Boots a host that is not on. Returns its supervisor process, which ends when the host does.
    pub(crate) fn on(&self, name: &str, number: u8) -> Result<BackgroundProgram> {
        off(self.lab, self.cgroups, name)?;
        net::remove_ports(self.lab, self.switch, name)?;
        self.cgroups.create(self.lab, name)?;
        let console = self.dir.join(CONSOLE);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&console)
            .map_err(Error::file("open", &console))?;
        let mut command = Command::new("setsid");
        command
            .arg("bash")
            .arg(self.script)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env(process::MARK, self.lab.as_str())
            .env("LAB_CGROUPS", self.cgroups.lines(self.lab, name))
            .env(SWITCH_VARIABLE, net::namespace(self.switch))
            .env("LAB_DIR", self.dir)
            .env("LAB_HOST", name)
            .current_dir("/");
        match self.kind {
            HostKind::Namespaces => self.add_namespaces(&mut command, number),
            HostKind::Vm(vm) => self.add_vm(&mut command, vm, name, number),
        }
        BackgroundProgram::start(command, log)
            .map_err(|source| Error::Start { program: "setsid bash boot.sh".to_owned(), source })
    }

    fn add_namespaces(&self, command: &mut Command, number: u8) {
        let address = subnet::host(self.net, number);
        command
            .arg("power")
            .env("LAB_MODE", self.cgroups.mode())
            .env("LAB_BASE", self.base)
            .env("LAB_ADDRESS", format!("{address}/24"))
            .env("LAB_GATEWAY", subnet::gateway(self.net).to_string())
            .env("LAB_MAC", self.lab.mac(address.octets()[3]));
    }

    fn add_vm(&self, command: &mut Command, vm: &VmOptions, name: &str, number: u8) {
        let nics = network::nics(self.lab, self.net, vm, name, number);
        let ports: Vec<_> = nics.iter().map(|nic| format!("{} {}", nic.port, nic.bridge)).collect();
        let console = self.dir.join(CONSOLE);
        let program = qemu::command(name, self.base, self.dir, &console, &nics, qemu::kvm_works());
        command.arg("machine").args(program).env("LAB_PORTS", ports.join("\n"));
    }

    /// Waits until the host answers by SSH. Fails immediately if `supervisor` ends first.
    pub(crate) fn wait_for_ssh(
        &self,
        name: &str,
        number: u8,
        mut supervisor: Option<BackgroundProgram>,
    ) -> Result<()> {
        let begin = Instant::now();
        let (limit, answer) = match self.kind {
            HostKind::Namespaces => (BOOT_TIMEOUT, BANNER_TIMEOUT),
            HostKind::Vm(_) => (VM_BOOT_TIMEOUT, VM_BANNER_TIMEOUT),
        };
        let target = SocketAddr::from((subnet::host(self.net, number), 22));
        let log = || fs::read_to_string(self.dir.join(CONSOLE)).unwrap_or_default();
        while begin.elapsed() < limit {
            if sends_ssh_banner(target, answer) {
                if let Some(supervisor) = supervisor {
                    supervisor.reap();
                }
                return Ok(());
            }
            if let Some(status) = supervisor.as_mut().and_then(|program| program.exit_status().ok().flatten())
            {
                return Err(Error::Boot { host: name.to_owned(), status: status.to_string(), log: log() });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(Error::Wait {
            what: format!("{name} does not answer by SSH"),
            waited: begin.elapsed(),
            log: log(),
        })
    }
}

/// Powers a host off: kills every process of it. Its mounts and its network end with them.
pub(crate) fn off(lab: &LabName, cgroups: &Cgroups, name: &str) -> Result<()> {
    // First the supervisor, which would boot the host again, and programs that are starting; then the rest.
    process::kill_all(name, || process::marked(lab, Some(name)))?;
    process::kill_all(name, || cgroups.processes(lab, name, ""))?;
    cgroups.remove(lab, name)
}

fn sends_ssh_banner(target: SocketAddr, limit: Duration) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT) else { return false };
    let mut banner = [0; 4];
    stream.set_read_timeout(Some(limit)).is_ok()
        && stream.read_exact(&mut banner).is_ok()
        && &banner == b"SSH-"
}
