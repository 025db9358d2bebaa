//! A small command line for the lab, for developers. Users have `kubeon lab`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::{os::unix::process::CommandExt as _, process::Command, time::Instant};

use clap::{Parser, Subcommand};
use kubeon_lab::{Lab, LabName, LabOptions, LabProgress, Places, User};

/// Test hosts on one machine.
#[derive(Parser)]
struct Args {
    /// Name of the lab.
    #[arg(long, global = true, default_value = LabName::DEFAULT)]
    lab: LabName,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Create the lab or complete it.
    Up {
        #[arg(long, default_value_t = 3)]
        hosts: u32,
    },
    /// Show labs and their hosts.
    Ls,
    /// Log in, or run a command, as root (`--user admin|operator`).
    Ssh {
        #[arg(long, default_value = "root")]
        user: String,
        host: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Power failure.
    Kill { host: String },
    /// Power back.
    Start { host: String },
    /// Unplug the cable.
    Cut { host: String },
    /// Plug in the cable.
    Heal { host: String },
    /// Remove the lab.
    Down,
    /// List the objects of the lab on the machine.
    Leftovers,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let places = Places::from_env()?;
    let begin = Instant::now();
    let open = || Lab::open(&places, &args.lab);
    match args.verb {
        Verb::Up { hosts } => {
            let options = LabOptions { places: places.clone(), name: args.lab, hosts, kind: None };
            let lab = Lab::up(&options, &|progress| match progress {
                LabProgress::BaseLine(line) => eprintln!("  {line}"),
                other => eprintln!("{:6.2} s  {other:?}", begin.elapsed().as_secs_f64()),
            })?;
            show(&lab)?;
        }
        Verb::Ls => {
            for name in Lab::list(&places)? {
                show(&Lab::open(&places, &name)?)?;
            }
        }
        Verb::Ssh { user, host, command } => {
            let user = match user.as_str() {
                "admin" => User::Admin,
                "operator" => User::Operator,
                _ => User::Root,
            };
            let words = open()?.ssh_command(&host, user)?;
            return Err(Command::new(&words[0]).args(&words[1..]).args(command).exec().into());
        }
        Verb::Kill { host } => open()?.kill(&host)?,
        Verb::Start { host } => open()?.start(&host)?,
        Verb::Cut { host } => open()?.cut(&host)?,
        Verb::Heal { host } => open()?.heal(&host)?,
        Verb::Down => Lab::down(&places, &args.lab)?,
        Verb::Leftovers => Lab::leftovers(&places, &args.lab)?.iter().for_each(|left| println!("{left}")),
    }
    eprintln!("{:.2} s", begin.elapsed().as_secs_f64());
    Ok(())
}

fn show(lab: &Lab) -> anyhow::Result<()> {
    println!("lab {} on {}", lab.name(), lab.subnet());
    for host in lab.hosts()? {
        println!("  {:4} {:15} {}", host.name, host.address, host.state);
    }
    Ok(())
}
