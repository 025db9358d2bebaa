//! Commands on 300 hosts: loopback addresses of one sshd. The memory of the program does not grow with what they print.

use std::io::{BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::home::sshd::Sshd;
use crate::home::{Home, PROGRAM};

const HOSTS: usize = 300;
/// What each host prints, in KiB. All of it together is 300 MiB.
const PRINTED: usize = 1024;
/// The most that the program may hold while it prints, in KiB.
const MEMORY_OF_EXEC: usize = 128 * 1024;
/// The size of the copied file in KiB, more than one connection sends at once.
const COPIED: usize = 4 * 1024;
/// The most that the program may hold while it copies, in KiB: 32 copies at a time with 8 MiB each, and the rest.
const MEMORY_OF_COPY: usize = 32 * 8 * 1024 + 64 * 1024;

/// The largest memory of a running process until now, in KiB.
fn peak_memory(child: &Child) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().trim_end_matches(" kB").parse().ok()
}

/// Runs the program to its end. Returns its exit code, the bytes that it printed, and its largest memory in KiB.
fn run(command: &mut Command) -> (i32, usize, usize) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let (mut buffer, mut printed, mut memory) = (vec![0; 1 << 20], 0, 0);
    let mut read = 1;
    while read > 0 {
        read = output.read(&mut buffer).unwrap();
        memory = peak_memory(&child).unwrap_or(memory);
        printed += read;
    }
    (child.wait().unwrap().code().unwrap(), printed, memory)
}

#[test]
#[ignore = "900 logins and 1.5 GiB, about a minute: ./test long"]
fn soak_commands_on_300_hosts_use_bounded_memory() {
    let sshd = Sshd::start();
    let address = |n: usize| format!("127.3.{}.{}", n / 250, n % 250 + 1);
    let workers = (1..HOSTS).map(address).collect::<Vec<_>>().join(",");
    let (master, flags) = (address(0), sshd.flags());
    let hosts = [&["-m", &master, "-w", &workers][..], &flags.iter().map(String::as_str).collect::<Vec<_>>()]
        .concat();
    let home = Home::with_cluster_of("t", &hosts);
    let kubeon = |arguments: &[&str]| run(home.command_in_home(PROGRAM).args(arguments).arg("--accept-new"));

    let line = format!("head -c {} /dev/zero | tr '\\0' x | fold -w 99", PRINTED * 1024);
    let (code, printed, memory) = kubeon(&["exec", "t@all", "-P", &line]);
    assert!(code == 0 && printed > HOSTS * PRINTED * 1024, "exit code {code}, {printed} bytes");
    println!("exec on {HOSTS} hosts: {} MiB printed, {} MiB of memory", printed >> 20, memory >> 10);
    assert!(memory < MEMORY_OF_EXEC, "exec used {memory} KiB");

    let file = home.path().join("file");
    std::fs::write(&file, vec![7; COPIED * 1024]).unwrap();
    let (code, _, memory) = kubeon(&["copy", "t@all", file.to_str().unwrap(), "/var/lib/copies/"]);
    println!("copy to {HOSTS} hosts: {} MiB of memory", memory >> 10);
    assert!(code == 0 && memory < MEMORY_OF_COPY, "exit code {code}, copy used {memory} KiB");

    let (code, printed, _) = kubeon(&["exec", "t@all", "-P", "sha256sum </var/lib/copies/file"]);
    assert!(code == 0 && printed > HOSTS * 64, "exit code {code}, {printed} bytes");
}
