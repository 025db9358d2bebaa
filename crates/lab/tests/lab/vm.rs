//! Virtual machines, real ones: minutes each, because their processor may be emulated. `./test long` runs them.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use kubeon_lab::{HostKind, HostState, Lab, Leftover, User, VmOptions, VmOs, VmProfile};

use crate::needs_root;
use crate::world::{MachineState, Scratch, ssh, ssh_by_password, states};

/// Boots virtual machines and says how long that took.
fn up(scratch: &Scratch, hosts: u32, os: VmOs, profiles: &[VmProfile]) -> Lab {
    needs_root();
    let options = VmOptions::new(os, profiles.iter().copied()).unwrap();
    eprintln!("{hosts} hosts, {options}");
    let begin = Instant::now();
    let kind = Some(HostKind::Vm(options));
    let lab = Lab::up(&kubeon_lab::LabOptions { kind, ..scratch.options(hosts) }, &|progress| {
        eprintln!("  {:6.1} s {progress:?}", begin.elapsed().as_secs_f64());
    });
    lab.unwrap()
}

fn run(lab: &Lab, host: &str, command: &str) -> String {
    let result = ssh(lab, host, User::Root, command);
    assert!(result.is_ok(), "{host}: {command}: {result:?}");
    result.unwrap_or_default()
}

fn succeeds(lab: &Lab, host: &str, command: &str) -> bool {
    ssh(lab, host, User::Root, command).is_ok()
}

/// Whether this machine opens a TCP connection to the address.
fn connects(address: Ipv4Addr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((address, port)), Duration::from_secs(5)).is_ok()
}

/// Waits for a condition, 15 minutes at most: an emulated processor shares this machine with others.
fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(15 * 60), "{what}: not within 15 minutes");
        thread::sleep(Duration::from_secs(1));
    }
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_hosts_have_their_own_kernel_and_the_logins_of_every_lab_host() {
    let before = MachineState::now();
    let scratch = Scratch::new("vm-plain");
    let lab = up(&scratch, 2, VmOs::Debian12, &[]);
    assert_eq!(states(&lab), [HostState::Running, HostState::Running]);
    assert!(run(&lab, "h1", "uname -r").starts_with("6.1."));
    assert_eq!(run(&lab, "h1", "stat -fc %T /sys/fs/cgroup"), "cgroup2fs");
    assert_eq!(run(&lab, "h1", "cat /sys/module/apparmor/parameters/enabled"), "Y");
    assert_eq!(run(&lab, "h2", "hostname"), "h2");
    assert_eq!(run(&lab, "h2", "systemctl is-system-running --wait"), "running");
    assert_eq!(ssh(&lab, "h1", User::Admin, "sudo -n id -u").unwrap(), "0");
    assert_eq!(ssh_by_password(&lab, "h1", User::Operator, "whoami").unwrap(), "operator");
    assert!(ssh(&lab, "h1", User::Operator, "sudo -n id -u").is_err(), "operator needed no password");
    run(&lab, "h1", &format!("ping -c1 -W5 {}", lab.address("h2").unwrap()));
    // The name server answers the one name, denies others, and nothing is reached beyond the lab.
    assert!(
        run(&lab, "h1", "getent ahostsv4 outside.test").starts_with(&lab.subnet().replace(".0/24", ".1"))
    );
    assert!(!succeeds(&lab, "h1", "getent hosts example.com"));
    assert!(!succeeds(&lab, "h1", "timeout 6 bash -c 'echo > /dev/tcp/198.51.100.1/22'"));
    scratch.down();
    before.assert_unchanged(&scratch);
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_that_is_killed_comes_back_as_itself_and_a_cable_works_as_usual() {
    let before = MachineState::now();
    let scratch = Scratch::new("vm-power");
    let lab = up(&scratch, 1, VmOs::Debian12, &[]);
    let boot_id = || ssh(&lab, "h1", User::Root, "cat /proc/sys/kernel/random/boot_id");
    let first = boot_id().unwrap();
    run(&lab, "h1", "echo kept > /root/file; sync");

    lab.kill("h1").unwrap();
    lab.kill("h1").unwrap();
    assert_eq!(states(&lab), [HostState::Dead]);
    let left = Lab::leftovers(&scratch.places, &scratch.name).unwrap();
    assert!(
        !left.iter().any(|it| matches!(it, Leftover::Process(_, line) if line.contains("qemu"))),
        "{left:?}"
    );
    lab.start("h1").unwrap();
    let second = boot_id().unwrap();
    assert_ne!(first, second);
    assert_eq!(run(&lab, "h1", "cat /root/file"), "kept");

    lab.cut("h1").unwrap();
    assert_eq!(states(&lab), [HostState::Cut]);
    assert!(boot_id().is_err());
    lab.heal("h1").unwrap();
    until("h1 answers", || boot_id().is_ok_and(|now| now == second));

    // The connection may end before the command does.
    let _ = ssh(&lab, "h1", User::Root, "systemctl reboot");
    until("the host rebooted", || boot_id().is_ok_and(|now| now != second));
    let _ = ssh(&lab, "h1", User::Root, "systemctl poweroff");
    until("the host is off", || states(&lab) == [HostState::Dead]);
    // A lab that is up again needs no flag.
    let again = scratch.up(1);
    assert_eq!(states(&again), [HostState::Running]);
    scratch.down();
    before.assert_unchanged(&scratch);
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_kernels_are_those_of_debian_11_and_13() {
    for (os, kernel) in [(VmOs::Debian11, "5.10."), (VmOs::Debian13, "6.12.")] {
        let scratch = Scratch::new("vm-os");
        let lab = up(&scratch, 1, os, &[VmProfile::Resolved]);
        assert!(run(&lab, "h1", "uname -r").starts_with(kernel));
        assert_eq!(run(&lab, "h1", "cat /sys/module/apparmor/parameters/enabled"), "Y");
        assert_eq!(run(&lab, "h1", "stat -fc %T /sys/fs/cgroup"), "cgroup2fs");
        assert!(run(&lab, "h1", "cat /etc/resolv.conf").contains("nameserver 127.0.0.53"));
        run(&lab, "h1", "getent ahostsv4 outside.test");
        scratch.down();
    }
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_with_resolved_asks_the_labs_name_server_through_its_stub() {
    let scratch = Scratch::new("vm-stub");
    let lab = up(&scratch, 1, VmOs::Debian12, &[VmProfile::Resolved]);
    assert!(run(&lab, "h1", "cat /etc/resolv.conf").contains("nameserver 127.0.0.53"));
    run(&lab, "h1", "getent ahostsv4 outside.test");
    let log = std::fs::read_to_string(lab.dir().join("dns.log")).unwrap();
    let asker = format!("query[A] outside.test from {}", lab.address("h1").unwrap());
    assert!(log.contains(&asker), "{log}");
    scratch.down();
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_firewalls_let_in_ssh_and_nothing_else() {
    for profile in [VmProfile::Firewalld, VmProfile::Ufw] {
        let scratch = Scratch::new(&format!("vm-{profile}"));
        let lab = up(&scratch, 1, VmOs::Debian12, &[profile]);
        let active = format!("systemctl is-active {profile}");
        until("the firewall is active", || succeeds(&lab, "h1", &active));
        let listen = "socat TCP-LISTEN:8080,fork,reuseaddr SYSTEM:true";
        run(&lab, "h1", &format!("systemd-run --quiet --unit=listener {listen}"));
        until("it listens", || succeeds(&lab, "h1", "timeout 5 bash -c ': < /dev/tcp/127.0.0.1/8080'"));
        assert!(!connects(lab.address("h1").unwrap(), 8080), "{profile} let it in");
        assert!(connects(lab.address("h1").unwrap(), 22));
        scratch.down();
    }
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_with_network_manager_gets_its_network_from_it() {
    let scratch = Scratch::new("vm-nm");
    let lab = up(&scratch, 1, VmOs::Debian12, &[VmProfile::NetworkManager]);
    assert!(run(&lab, "h1", "nmcli -t -f NAME,STATE connection show --active").contains("lab-1:activated"));
    assert!(!succeeds(&lab, "h1", "systemctl is-active systemd-networkd"));
    run(&lab, "h1", "getent ahostsv4 outside.test");
    scratch.down();
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_with_cloud_init_has_its_hosts_file_rewritten_at_every_boot() {
    let scratch = Scratch::new("vm-cloud");
    let lab = up(&scratch, 1, VmOs::Debian12, &[VmProfile::CloudInit]);
    run(&lab, "h1", "cloud-init status --wait || :; echo 192.0.2.7 mine >> /etc/hosts; sync");
    assert!(run(&lab, "h1", "cat /etc/hosts").contains("127.0.1.1 h1"));
    let key = lab.known_hosts().unwrap();
    lab.kill("h1").unwrap();
    lab.start("h1").unwrap();
    run(&lab, "h1", "cloud-init status --wait || :");
    assert!(!run(&lab, "h1", "cat /etc/hosts").contains("192.0.2.7"));
    assert_eq!(lab.known_hosts().unwrap(), key);
    scratch.down();
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_with_two_nics_has_a_network_that_the_machine_does_not_reach() {
    let before = MachineState::now();
    let scratch = Scratch::new("vm-nics");
    let lab = up(&scratch, 2, VmOs::Debian12, &[VmProfile::TwoNics]);
    let hosts = lab.hosts().unwrap();
    let second = hosts[1].cluster_address;
    assert_ne!(hosts[1].address, second);
    run(&lab, "h1", &format!("ping -c1 -W5 {second}"));
    // Not even by the machine's default route.
    assert!(!connects(second, 22), "the machine reached it");
    // Both cables are unplugged.
    lab.cut("h2").unwrap();
    assert!(!succeeds(&lab, "h1", &format!("ping -c1 -W5 {second}")));
    lab.heal("h2").unwrap();
    until("h2 answers", || succeeds(&lab, "h1", &format!("ping -c1 -W5 {second}")));
    scratch.down();
    before.assert_unchanged(&scratch);
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_behind_nat_does_not_own_the_address_that_it_is_logged_in_to_by() {
    let before = MachineState::now();
    let scratch = Scratch::new("vm-nat");
    let lab = up(&scratch, 2, VmOs::Debian12, &[VmProfile::Nat]);
    let hosts = lab.hosts().unwrap();
    let addresses = run(&lab, "h1", "ip -4 -o address");
    assert!(!addresses.contains(&format!(" {}/", hosts[0].address)), "{addresses}");
    assert!(addresses.contains(&format!(" {}/", hosts[0].cluster_address)), "{addresses}");
    for other in [hosts[1].cluster_address, hosts[1].address] {
        let greeting = run(&lab, "h1", &format!("head -c4 < /dev/tcp/{other}/22"));
        assert_eq!(greeting, "SSH-", "{other}");
    }
    run(&lab, "h1", "getent ahostsv4 outside.test");
    scratch.down();
    before.assert_unchanged(&scratch);
}
