//! `kubeon lab`.

use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use kubeon_api::Version;
use kubeon_lab::{HostKind, Lab, LabHost, LabName, LabOptions, LabProgress, User, VmOptions};
use serde::Serialize;

use crate::args::Format;
use crate::args::lab::{LabArgs, LabCommand, LabDown, LabHostArgs, LabKind, LabLs, LabSsh, LabUp, LabUser};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::display::spinner::Spinner;
use crate::output::{CommandResult, TextTable, words};
use crate::remedies;
use kubeon_engine::error::{ErrorCategory, chain};

/// Runs a subcommand of `kubeon lab`.
pub(crate) async fn run(context: &Context<'_>, args: &LabArgs) -> Result<(), CliError> {
    match &args.command {
        None => crate::help::help(context.output, &["lab"]),
        Some(LabCommand::Up(args)) => up(context, args).await,
        Some(LabCommand::Ls(args)) => list(context, args),
        Some(LabCommand::Ssh(args)) => ssh(context, args),
        Some(LabCommand::Kill(args)) => on_host(context, args, "is powered off", |lab, host| lab.kill(host)),
        Some(LabCommand::Start(args)) => on_host(context, args, "is up", |lab, host| lab.start(host)),
        Some(LabCommand::Cut(args)) => {
            on_host(context, args, "is off the network", |lab, host| lab.cut(host))
        }
        Some(LabCommand::Heal(args)) => {
            on_host(context, args, "is on the network", |lab, host| lab.heal(host))
        }
        Some(LabCommand::Down(args)) => down(context, args),
    }
}

fn to_cli_error(error: kubeon_lab::Error) -> CliError {
    use kubeon_lab::Error;
    let category = match &error {
        Error::Name { .. }
        | Error::HostCount { .. }
        | Error::NotRoot
        | Error::MissingPrograms { .. }
        | Error::NoDevice { .. }
        | Error::Choice { .. }
        | Error::Profiles { .. }
        | Error::OtherKind { .. }
        | Error::NoPlace { .. }
        | Error::UnfitPlace { .. }
        | Error::Busy { .. }
        | Error::ForeignLab { .. }
        | Error::NoLab { .. }
        | Error::NoHost { .. }
        | Error::HostDead { .. }
        | Error::NoSubnet => ErrorCategory::Refused,
        _ => ErrorCategory::Failed,
    };
    CliError::new(category, chain(&error)).next(error.remedy().as_ref().map(remedies::lab))
}

fn name(text: &str) -> Result<LabName, CliError> {
    text.parse().map_err(to_cli_error)
}

/// The kind that the flags ask for; `None` if they do not say.
fn kind(args: &LabUp) -> Result<Option<HostKind>, CliError> {
    let vm =
        || VmOptions::new(args.os.unwrap_or_default(), args.profile.iter().copied()).map_err(to_cli_error);
    match args.kind {
        None => Ok(None),
        Some(LabKind::Vm) => Ok(Some(HostKind::Vm(vm()?))),
        Some(LabKind::Namespaces) if args.os.is_some() || !args.profile.is_empty() => {
            Err(CliError::refused("--os and --profile apply to virtual machines only: use --kind vm"))
        }
        Some(LabKind::Namespaces) => Ok(Some(HostKind::Namespaces)),
    }
}

async fn up(context: &Context<'_>, args: &LabUp) -> Result<(), CliError> {
    let options = LabOptions {
        places: context.lab_places()?,
        name: name(&args.lab.lab)?,
        hosts: args.hosts,
        kind: kind(args)?,
    };
    let begin = Instant::now();
    let spinner = std::sync::Arc::new(Spinner::new(context.output));
    let shown = std::sync::Arc::clone(&spinner);
    let (lab, built) = tokio::task::spawn_blocking(move || {
        let built = parking_lot::Mutex::new(None);
        let progress = |progress: LabProgress| show(&shown, &built, progress);
        let lab = Lab::up(&options, &progress);
        (lab, built.into_inner())
    })
    .await
    .map_err(|error| CliError::failed(error.to_string()))?;
    drop(spinner);
    let lab = lab.map_err(to_cli_error)?;
    let hosts = lab.hosts().map_err(to_cli_error)?;
    let took = words::time(begin.elapsed());
    let base =
        built.map_or_else(|| "base found".to_owned(), |time| format!("base built in {}", words::time(time)));
    context.output.info(&format!(
        "lab {}: {base}, {} up in {took}",
        lab.name(),
        words::count(hosts.len(), "host")
    ));
    context.output.result(&answer(&lab, &hosts)?.text(args.format.output)?)?;
    if args.format.output == Format::Table {
        context.output.info(&format!("next: {}", next(context, &hosts)?));
    }
    Ok(())
}

fn show(spinner: &Spinner, built: &parking_lot::Mutex<Option<Duration>>, progress: LabProgress) {
    match progress {
        LabProgress::BaseMissing => {
            spinner.begin("base", "building the base root file system (only once, one to three minutes)")
        }
        LabProgress::BaseLine(line) => spinner.update("base", &line),
        LabProgress::BaseBuilt(time) => {
            spinner.end("base", Ok("built"));
            *built.lock() = Some(time);
        }
        LabProgress::BaseFound => {}
        LabProgress::Note(text) => spinner.info(&format!("note: {text}")),
        LabProgress::Booting(host) => spinner.begin(&host, "booting"),
        LabProgress::Ready(host, _) => spinner.end(&host, Ok("answers by SSH")),
    }
}

/// The command that creates a cluster on these hosts: of the newest version with a bundle on this machine, if there is one.
fn next(context: &Context<'_>, hosts: &[LabHost]) -> Result<String, CliError> {
    let environment = context.engine_environment();
    let versions: Vec<Version> = kubeon_engine::bundles::catalogue()?.versions().collect();
    let has_bundle = |version: &&Version| kubeon_engine::bundles::find(&environment, **version).is_ok();
    let version = versions.iter().rev().find(has_bundle).or(versions.last());
    let version = version.map_or_else(String::new, ToString::to_string);
    let flags = hosts.iter().enumerate().map(|(i, host)| {
        let flag = if i == 0 { "-m" } else { "-w" };
        format!(" {flag} {}", host.address)
    });
    Ok(format!("kubeon create demo {version}{}", flags.collect::<String>()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    lab: String,
    host: String,
    address: String,
    state: String,
    ssh: String,
    kind: String,
    cluster_address: String,
}

fn rows(lab: &Lab, hosts: &[LabHost]) -> Vec<Row> {
    let suffix =
        if lab.name().as_str() == "default" { String::new() } else { format!(" --lab {}", lab.name()) };
    let row = |host: &LabHost| Row {
        lab: lab.name().to_string(),
        host: host.name.clone(),
        address: host.address.to_string(),
        state: host.state.to_string(),
        ssh: format!("kubeon lab ssh {}{suffix}", host.name),
        kind: lab.kind().to_string(),
        cluster_address: host.cluster_address.to_string(),
    };
    hosts.iter().map(row).collect()
}

fn answer(lab: &Lab, hosts: &[LabHost]) -> Result<CommandResult, CliError> {
    let rows = rows(lab, hosts);
    let mut table = TextTable::new(&["HOST", "ADDRESS", "SSH"]).wide(&["STATE", "CLUSTER ADDRESS"]).indent(2);
    rows.iter().for_each(|row| {
        table.row([
            row.host.clone(),
            row.address.clone(),
            row.ssh.clone(),
            row.state.clone(),
            row.cluster_address.clone(),
        ])
    });
    let names = rows.iter().map(|row| row.host.clone()).collect();
    CommandResult::new(&rows, table, names)
}

fn list(context: &Context<'_>, args: &LabLs) -> Result<(), CliError> {
    let places = context.lab_places()?;
    let names = match &args.lab {
        Some(lab) => vec![name(lab)?],
        None => Lab::list(&places).map_err(to_cli_error)?,
    };
    let mut all = Vec::new();
    for name in names {
        let lab = Lab::open(&places, &name).map_err(to_cli_error)?;
        all.extend(rows(&lab, &lab.hosts().map_err(to_cli_error)?));
    }
    let wide = ["SSH", "KIND", "CLUSTER ADDRESS"];
    let mut table = TextTable::new(&["LAB", "HOST", "ADDRESS", "STATE"]).wide(&wide);
    for row in &all {
        table.row([
            row.lab.clone(),
            row.host.clone(),
            row.address.clone(),
            row.state.clone(),
            row.ssh.clone(),
            row.kind.clone(),
            row.cluster_address.clone(),
        ]);
    }
    if all.is_empty() {
        context.output.info("no lab on this machine; create one with: kubeon lab up --hosts 3");
    }
    let names = all.iter().map(|row| row.host.clone()).collect();
    context.output.result(&CommandResult::new(&all, table, names)?.text(args.format.output)?)
}

fn open(context: &Context<'_>, lab: &str) -> Result<Lab, CliError> {
    Lab::open(&context.lab_places()?, &name(lab)?).map_err(to_cli_error)
}

/// Replaces this process with `ssh`, so that the exit code is that of `ssh`.
fn ssh(context: &Context<'_>, args: &LabSsh) -> Result<(), CliError> {
    let user = match args.user {
        LabUser::Root => User::Root,
        LabUser::Admin => User::Admin,
        LabUser::Operator => User::Operator,
    };
    let mut arguments = open(context, &args.lab.lab)?.ssh_command(&args.host, user).map_err(to_cli_error)?;
    arguments.extend(args.command.iter().cloned());
    let program = arguments.remove(0);
    let error = std::process::Command::new(&program).args(arguments).exec();
    Err(CliError::failed(format!(
        "cannot run {program}: {error}; install it with: apt-get install openssh-client"
    )))
}

fn on_host(
    context: &Context<'_>,
    args: &LabHostArgs,
    result: &str,
    act: impl Fn(&Lab, &str) -> kubeon_lab::Result<()>,
) -> Result<(), CliError> {
    let lab = open(context, &args.lab.lab)?;
    act(&lab, &args.host).map_err(to_cli_error)?;
    context.output.info(&format!("{} of lab {} {result}", args.host, lab.name()));
    Ok(())
}

fn down(context: &Context<'_>, args: &LabDown) -> Result<(), CliError> {
    let (places, name) = (context.lab_places()?, name(&args.lab.lab)?);
    Lab::down(&places, &name).map_err(to_cli_error)?;
    context.output.info(&format!("lab {name} is deleted"));
    Ok(())
}
