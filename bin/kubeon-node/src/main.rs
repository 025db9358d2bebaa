//! `kubeon-node apply | facts | firewall | publish-api | reach-api [--end] | renew | reset --cluster NAME |
//! serve-program ADDRESS FILE | version`.

mod host_commands;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use kubeon_node::events::Events;
use kubeon_node::facts;
use kubeon_node::host::HostSystem;
use kubeon_node::input::Live;
use kubeon_node::root::Root;
use kubeon_node::session::{Ending, Session};
use kubeon_wire::SILENCE_LIMIT;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const USAGE: &str = "\
kubeon-node: the program that kubeon runs on a host

usage: kubeon-node [--root DIR] COMMAND
  apply                 execute the requests from standard input, write events to standard output
  facts                 print the facts of this host as JSON; changes nothing
  firewall              open the firewall again after its owner loaded its rules
  publish-api           keep the endpoints of the API's Service equal to the API servers that serve
  reach-api             keep the API's name leading to an API server that answers
  reach-api --end       remove what reach-api wrote
  renew                 renew the certificates of this host that are due
  reset --cluster NAME  remove everything of the cluster from this host
  serve-program ADDRESS FILE
                        serve FILE to other hosts until standard input ends; remove FILE
  version               print the version
  --root DIR            use DIR as /; change no service, process or network";

/// The exit code after a signal.
const SIGNALLED: u8 = 130;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = given.iter().map(String::as_str).collect();
    let (root, arguments) = match arguments.as_slice() {
        ["--root", root, rest @ ..] => (Root::new(Path::new(root)), rest),
        rest => (Root::new(Path::new("/")), rest),
    };
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o022));
    let outcome = match arguments {
        ["apply"] => apply(root),
        ["facts"] => print_facts(root),
        ["firewall"] => host_commands::restore_firewall(root),
        ["publish-api"] => host_commands::publish_api(root),
        ["reach-api"] => host_commands::reach_api(root),
        ["reach-api", "--end"] => host_commands::end_reach_api(root),
        ["renew"] => host_commands::renew(root),
        ["reset", "--cluster", name] => host_commands::reset(root, name),
        ["serve-program", address, file] => host_commands::serve_program(address, file),
        ["version"] => writeln!(io::stdout(), "kubeon-node {}", env!("CARGO_PKG_VERSION")).map(|()| 0),
        ["help" | "-h" | "--help"] => writeln!(io::stdout(), "{USAGE}").map(|()| 0),
        _ => writeln!(io::stderr(), "{USAGE}").map(|()| 2),
    };
    ExitCode::from(outcome.unwrap_or(1))
}

fn apply(root: Root) -> io::Result<u8> {
    let session = Session::new(HostSystem::new(root), Events::stdout());
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let on_signal = Arc::clone(&session);
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            on_signal.finish();
            std::process::exit(i32::from(SIGNALLED));
        }
    });
    let stdin = File::from(rustix::io::dup(rustix::stdio::stdin())?);
    // A large pipe buffer avoids most context switches. The call fails if the input is not a pipe.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdin, 1 << 20);
    Ok(match session.serve(Live::new(stdin, SILENCE_LIMIT)) {
        Ending::Closed => 0,
        Ending::Refused => 1,
    })
}

fn print_facts(root: Root) -> io::Result<u8> {
    match facts::collect(&Arc::new(HostSystem::new(root))) {
        Ok(facts) => {
            let mut text = serde_json::to_vec(&facts)?;
            text.push(b'\n');
            io::stdout().write_all(&text).map(|()| 0)
        }
        Err(failure) => writeln!(io::stderr(), "error: {failure}").map(|()| 1),
    }
}
