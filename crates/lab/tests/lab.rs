//! Real labs on this machine: needs root and the programs of a lab; builds the base root file system if it is not in
//! the cache. Without root every test fails.
//!
//! Each test has its own lab with state in a temporary folder.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test code")]

#[path = "lab/vm.rs"]
mod vm;
#[path = "lab/world.rs"]
mod world;

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use kubeon_lab::{HostState, Lab, LabName, Leftover, User};
use world::{MachineState, Scratch};

/// A test that checks nothing must not pass.
fn needs_root() {
    assert!(rustix::process::geteuid().is_root(), "this test creates namespaces and mounts: run it as root");
}

#[test]
fn hosts_are_complete_and_reach_only_each_other() {
    needs_root();
    let before = MachineState::now();
    let scratch = Scratch::new("whole");
    let lab = scratch.up(2);
    let [h1, h2] = ["h1", "h2"].map(|h| lab.address(h).unwrap());

    assert_eq!(world::ssh(&lab, "h1", User::Root, "hostname").unwrap(), "h1");
    assert_eq!(world::ssh(&lab, "h1", User::Root, "systemctl is-system-running --wait").unwrap(), "running");
    assert_eq!(
        world::ssh(&lab, "h1", User::Root, "systemctl --failed --quiet --plain list-units").unwrap(),
        ""
    );
    assert_eq!(
        world::ssh(&lab, "h1", User::Root, "systemd-run --quiet --wait --pipe echo ran").unwrap(),
        "ran"
    );
    assert!(
        world::ssh(&lab, "h1", User::Root, "journalctl -b -u ssh --no-pager")
            .unwrap()
            .contains("Server listening")
    );
    assert_eq!(world::ssh(&lab, "h1", User::Root, "findmnt -no PROPAGATION /").unwrap(), "shared");
    assert_ne!(world::ssh(&lab, "h1", User::Root, "stat -fc %T /var").unwrap(), "overlayfs");

    world::ssh(&lab, "h1", User::Root, &format!("ping -c1 -W2 {h2}")).unwrap();
    let greeting = world::ssh(&lab, "h2", User::Root, &format!("head -c4 < /dev/tcp/{h1}/22")).unwrap();
    assert_eq!(greeting, "SSH-");

    // Outside addresses: a documentation network, a public server and the addresses of this machine.
    for target in ["198.51.100.1", "8.8.8.8"].into_iter().map(str::to_owned).chain(world::own_addresses(&lab))
    {
        let begin = Instant::now();
        let result =
            world::ssh(&lab, "h1", User::Root, &format!("timeout 6 bash -c 'echo > /dev/tcp/{target}/22'"));
        assert!(result.is_err(), "{target} was reached");
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{target} was refused only after {:?}",
            begin.elapsed()
        );
    }
    let begin = Instant::now();
    assert!(world::ssh(&lab, "h1", User::Root, "getent hosts example.com").is_err());
    assert!(begin.elapsed() < Duration::from_secs(4), "a name look-up waited {:?}", begin.elapsed());

    scratch.down();
    before.assert_unchanged(&scratch);
}

#[test]
fn every_kind_of_login_works() {
    needs_root();
    let scratch = Scratch::new("logins");
    let lab = scratch.up(1);
    assert_eq!(world::ssh(&lab, "h1", User::Admin, "sudo -n id -u").unwrap(), "0");
    assert!(world::ssh(&lab, "h1", User::Operator, "sudo -n id -u").is_err(), "operator needed no password");
    let password = std::fs::read_to_string(lab.password_path()).unwrap();
    let sudo = format!("echo {} | sudo -S -p '' id -u", password.trim());
    assert_eq!(world::ssh(&lab, "h1", User::Operator, &sudo).unwrap(), "0");
    for user in [User::Root, User::Admin, User::Operator] {
        assert_eq!(world::ssh_by_password(&lab, "h1", user, "whoami").unwrap(), user.name());
    }
    scratch.down();
}

#[test]
fn kernel_parameters_of_a_host_do_not_change_the_machine() {
    needs_root();
    let scratch = Scratch::new("sysctl");
    let lab = scratch.up(1);
    let names =
        ["vm/overcommit_memory", "vm/swappiness", "kernel/panic", "fs/file-max", "net/ipv4/ip_forward"];
    let machine = || names.map(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap());
    let before = machine();
    let write = "sysctl -w vm.overcommit_memory=2 vm.swappiness=7 kernel.panic=77 fs.file-max=777777 \
                 net.ipv4.ip_forward=1 && cat /proc/sys/vm/swappiness /proc/sys/kernel/panic";
    assert!(world::ssh(&lab, "h1", User::Root, write).unwrap().ends_with("7\n77"));
    assert_eq!(machine(), before);
    scratch.down();
}

#[test]
fn a_killed_host_ends_at_once_and_keeps_its_identity() {
    needs_root();
    let scratch = Scratch::new("kill");
    let lab = scratch.up(2);
    let key = lab.known_hosts().unwrap();
    let boot_id = || world::ssh(&lab, "h1", User::Root, "cat /proc/sys/kernel/random/boot_id").unwrap();
    let machine_id = || world::ssh(&lab, "h1", User::Root, "cat /etc/machine-id").unwrap();
    let (boot, machine) = (boot_id(), machine_id());
    world::ssh(
        &lab,
        "h1",
        User::Root,
        "echo kept > /root/file; echo kept > /var/lib/file; sync; systemd-run -q sleep 999",
    )
    .unwrap();

    lab.kill("h1").unwrap();
    assert_eq!(world::states(&lab), [HostState::Dead, HostState::Running]);
    let left = Lab::leftovers(&scratch.places, &scratch.name).unwrap();
    let of_h1 = |l: &&Leftover| matches!(l, Leftover::Process(_, line) if line.contains("h1") || line.contains("999"));
    assert_eq!(left.iter().find(of_h1), None);
    assert!(world::ssh(&lab, "h1", User::Root, "true").is_err());
    lab.kill("h1").unwrap();

    lab.start("h1").unwrap();
    assert_eq!(world::states(&lab), [HostState::Running, HostState::Running]);
    assert_eq!(world::ssh(&lab, "h1", User::Root, "cat /root/file /var/lib/file").unwrap(), "kept\nkept");
    assert_eq!(lab.known_hosts().unwrap(), key);
    assert_eq!(machine_id(), machine);
    assert_ne!(boot_id(), boot);
    // The other host reaches it at once, because the hardware address is the same.
    world::ssh(&lab, "h2", User::Root, &format!("ping -c1 -W2 {}", lab.address("h1").unwrap())).unwrap();
    scratch.down();
}

#[test]
fn a_host_can_reboot_and_power_itself_off() {
    needs_root();
    let scratch = Scratch::new("reboot");
    let lab = scratch.up(1);
    let boot_id = || world::ssh(&lab, "h1", User::Root, "cat /proc/sys/kernel/random/boot_id");
    let first = boot_id().unwrap();
    // The connection may end before the command does.
    let _ = world::ssh(&lab, "h1", User::Root, "systemctl reboot");
    world::wait_until("the host rebooted", || boot_id().is_ok_and(|now| now != first));
    let _ = world::ssh(&lab, "h1", User::Root, "systemctl poweroff");
    world::wait_until("the host is off", || world::states(&lab) == [HostState::Dead]);
    Lab::up(&scratch.options(1), &|_| ()).unwrap();
    boot_id().unwrap();
    scratch.down();
}

#[test]
fn a_cut_host_keeps_running_without_network_until_it_is_healed() {
    needs_root();
    let scratch = Scratch::new("cut");
    let lab = scratch.up(2);
    let counter =
        "systemd-run --quiet --unit=count bash -c 'for i in {1..999}; do echo >> /root/n; sleep .1; done'";
    world::ssh(&lab, "h2", User::Root, counter).unwrap();
    let count = || world::ssh(&lab, "h2", User::Root, "wc -l < /root/n").unwrap().parse::<u32>().unwrap();
    lab.cut("h2").unwrap();
    lab.cut("h2").unwrap();
    assert_eq!(world::states(&lab), [HostState::Running, HostState::Cut]);
    let ping = format!("ping -c1 -W1 {}", lab.address("h2").unwrap());
    assert!(world::ssh(&lab, "h1", User::Root, &ping).is_err());
    thread::sleep(Duration::from_secs(1));
    lab.heal("h2").unwrap();
    world::wait_until("h2 answers", || world::ssh(&lab, "h1", User::Root, &ping).is_ok());
    assert!(count() >= 10, "the host stopped while it was cut");

    // Powering a host on does not plug in its cable.
    lab.cut("h2").unwrap();
    lab.kill("h2").unwrap();
    lab.start("h2").unwrap();
    world::wait_until("h2 runs with an unplugged cable", || world::states(&lab)[1] == HostState::Cut);
    lab.heal("h2").unwrap();
    world::wait_until("h2 answers", || world::ssh(&lab, "h2", User::Root, "true").is_ok());
    scratch.down();
}

#[test]
fn two_labs_cannot_reach_each_other() {
    needs_root();
    let (a, b) = (Scratch::new("side-a"), Scratch::new("side-b"));
    let (lab_a, lab_b) = thread::scope(|scope| {
        let second = scope.spawn(|| b.up(1));
        (a.up(1), second.join().unwrap())
    });
    assert_ne!(lab_a.subnet(), lab_b.subnet());
    let other = lab_b.address("h1").unwrap();
    assert!(world::ssh(&lab_a, "h1", User::Root, &format!("ping -c1 -W1 {other}")).is_err());
    // The machine does not route between the labs either.
    let route = format!("ip route add {} via {}", lab_b.subnet(), lab_a.machine_address());
    world::ssh(&lab_a, "h1", User::Root, &route).unwrap();
    assert!(world::ssh(&lab_a, "h1", User::Root, &format!("ping -c1 -W1 {other}")).is_err());
    a.down();
    assert_eq!(world::ssh(&lab_b, "h1", User::Root, "hostname").unwrap(), "h1");
    b.down();
}

#[test]
fn a_lab_of_another_folder_is_refused() {
    needs_root();
    let scratch = Scratch::new("owner");
    let lab = scratch.up(1);
    let foreign = Scratch::named(scratch.name.clone());
    assert!(matches!(Lab::up(&foreign.options(1), &|_| ()), Err(kubeon_lab::Error::ForeignLab { .. })));
    assert!(matches!(Lab::down(&foreign.places, &foreign.name), Err(kubeon_lab::Error::ForeignLab { .. })));
    world::ssh(&lab, "h1", User::Root, "true").unwrap();
    scratch.down();
}

#[test]
fn up_adds_hosts_and_boots_dead_hosts() {
    needs_root();
    let scratch = Scratch::new("again");
    let lab = scratch.up(1);
    lab.kill("h1").unwrap();
    let lab = scratch.up(2);
    assert_eq!(world::states(&lab), [HostState::Running, HostState::Running]);
    assert_eq!(scratch.up(1).hosts().unwrap().len(), 2);
    scratch.down();
    Lab::down(&scratch.places, &scratch.name).unwrap();
}

#[test]
fn up_boots_hosts_again_that_lost_their_switch() {
    needs_root();
    let scratch = Scratch::new("switch");
    scratch.up(2);
    let left = Lab::leftovers(&scratch.places, &scratch.name).unwrap();
    let is_switch = |line: &str| line.starts_with("kubeon-lab-switch");
    let switch = left.iter().find_map(|leftover| match leftover {
        Leftover::Process(pid, line) if is_switch(line) => Some(*pid),
        _ => None,
    });
    let switch = rustix::process::Pid::from_raw(switch.unwrap()).unwrap();
    rustix::process::kill_process(switch, rustix::process::Signal::KILL).unwrap();
    let lab = scratch.up(2);
    for host in ["h1", "h2"] {
        world::ssh(&lab, host, User::Root, "true").unwrap();
    }
    scratch.down();
}

/// The process that the next tests kill: they run only this test in it.
#[test]
#[ignore = "a part of the tests that kill it"]
fn child_up() {
    let name: LabName = std::env::var("LAB_TEST_NAME").unwrap().parse().unwrap();
    let home = std::env::var_os("LAB_TEST_HOME").unwrap();
    let scratch = Scratch::at(name, home.into());
    let lab = || Lab::open(&scratch.places, &scratch.name).unwrap();
    match std::env::var("LAB_TEST_VERB").as_deref() {
        Ok("down") => Lab::down(&scratch.places, &scratch.name).unwrap(),
        Ok("kill") => lab().kill("h1").unwrap(),
        Ok("start") => lab().start("h1").unwrap(),
        _ => drop(scratch.up(2)),
    }
}

/// The command that runs `verb` in a separate process.
fn begin(scratch: &Scratch, verb: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child_up", "--ignored"])
        .env("LAB_TEST_NAME", scratch.name.as_str())
        .env("LAB_TEST_HOME", scratch.home())
        .env("LAB_TEST_VERB", verb)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

#[test]
fn nothing_is_left_after_another_command_is_killed_at_any_moment() {
    needs_root();
    let before = MachineState::now();
    let scratch = Scratch::new("crash2");
    for verb in ["kill", "start", "down"] {
        let ready = || {
            let lab = scratch.up(2);
            if verb == "start" {
                lab.kill("h1").unwrap();
            }
        };
        ready();
        let start = Instant::now();
        assert!(begin(&scratch, verb).status().unwrap().success(), "{verb}");
        let duration = start.elapsed();
        for tenth in [1, 4, 7] {
            ready();
            let mut child = begin(&scratch, verb).spawn().unwrap();
            thread::sleep(duration * tenth / 10);
            child.kill().unwrap();
            child.wait().unwrap();
            // An interrupted command can be completed, and the lab can then be removed completely.
            if tenth == 4 || verb == "down" {
                let lab = scratch.up(2);
                world::ssh(&lab, "h1", User::Root, "true").unwrap();
            }
            scratch.down();
            before.assert_unchanged(&scratch);
        }
    }
}

#[test]
fn down_removes_a_base_whose_build_was_killed() {
    needs_root();
    let scratch = Scratch::new("base");
    let cache = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let building = || {
        let entries = std::fs::read_dir(cache.path().join("lab")).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "building"))
    };
    let mut child = begin(&scratch, "up").env("KUBEON_CACHE", cache.path()).spawn().unwrap();
    world::wait_until("the base is being built", || {
        building().is_some_and(|path| path.join("debootstrap").exists())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let places = kubeon_lab::Places::new(scratch.home(), cache.path());
    let left = Lab::leftovers(&places, &scratch.name).unwrap();
    assert!(
        left.iter()
            .any(|leftover| matches!(leftover, Leftover::File(path) if Some(path) == building().as_ref())),
        "{left:?}"
    );
    Lab::down(&places, &scratch.name).unwrap();
    assert_eq!((building(), Lab::leftovers(&places, &scratch.name).unwrap()), (None, vec![]));
}

#[test]
fn nothing_is_left_after_up_is_killed_at_any_moment() {
    needs_root();
    let before = MachineState::now();
    let scratch = Scratch::new("crash");
    let begin = Instant::now();
    scratch.up(2);
    let duration = begin.elapsed();
    scratch.down();
    before.assert_unchanged(&scratch);
    for moment in 0..10_u32 {
        // A moment in each tenth of the time that `up` takes.
        let within = f64::from(Instant::now().duration_since(begin).subsec_nanos() % 1000) / 1000.0;
        let after = duration.mul_f64((f64::from(moment) + within) / 10.0);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_up", "--ignored"])
            .env("LAB_TEST_NAME", scratch.name.as_str())
            .env("LAB_TEST_HOME", scratch.home())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(after);
        child.kill().unwrap();
        // In every second round `down` runs before the killed process is reaped.
        if moment % 2 == 0 {
            child.wait().unwrap();
        }
        scratch.down();
        child.wait().unwrap();
        before.assert_unchanged(&scratch);
        eprintln!("killed after {:.3} s: nothing left", after.as_secs_f64());
    }
    // An incomplete lab can also be completed.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_up", "--ignored"])
        .env("LAB_TEST_NAME", scratch.name.as_str())
        .env("LAB_TEST_HOME", scratch.home())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(duration / 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let lab = scratch.up(2);
    world::ssh(&lab, "h2", User::Root, "true").unwrap();
    scratch.down();
    before.assert_unchanged(&scratch);
}
