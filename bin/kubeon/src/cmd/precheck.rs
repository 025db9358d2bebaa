//! `kubeon precheck`.

use kubeon_engine::checked::refusal;
use kubeon_engine::precheck::check;
use kubeon_plan::precheck::ConnectionTarget;
use kubeon_wire::{PrecheckHost, PrecheckReport, PrecheckResult, PrecheckSeverity, Progress};

use crate::args::Format;
use crate::args::precheck::PrecheckArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable, words};
use crate::refusal_flags;
use crate::target::{self, AskedBy};

/// Default port of registries.
const REGISTRY_PORT: u16 = 443;

/// Checks hosts and writes nothing.
pub(super) async fn run(context: &Context<'_>, args: &PrecheckArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let registries = registries(&args.registry)?;
    let target = target::find(&engine, &args.cluster, AskedBy::Precheck)?;
    let report = check(&engine, &target, &args.cluster.contact.options(), &registries).await?;
    context.output.result(&text(&report, args.format.output)?)?;
    let result = if report.ok { Ok(()) } else { Err(refusal(&report, None).into()) };
    context.output.progress(&Progress::Precheck { report });
    result
}

fn registries(given: &[String]) -> Result<Vec<ConnectionTarget>, CliError> {
    let target = |text: &String| {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, port.parse().ok()),
            None => (text.as_str(), Some(REGISTRY_PORT)),
        };
        let is_valid =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
        match port {
            Some(port) if is_valid => Ok((name.to_owned(), port)),
            _ => Err(CliError::refused(format!("--registry {text:?} is not HOST or HOST:PORT"))),
        }
    };
    given.iter().map(target).collect()
}

fn text(report: &PrecheckReport, format: Format) -> Result<String, CliError> {
    let wide = format == Format::Wide;
    let mut table = TextTable::new(&["HOST", "NAME", "CHECK", "RESULT", "FOUND", "WANTED", "WHAT"]);
    for host in &report.hosts {
        for result in host.checks.iter().filter(|result| wide || !result.ok) {
            table.row(row(host, result));
        }
    }
    let names = report.hosts.iter().filter(|host| !host.ok).map(|host| host.host.to_string()).collect();
    let checks = report.hosts.iter().map(|host| host.checks.len()).sum();
    let (checks, hosts) = (words::count(checks, "check"), words::count(report.hosts.len(), "host"));
    let footer = format!(
        "{hosts}, {checks}: {}, {}\n",
        words::count(report.errors as usize, "error"),
        words::count(report.warnings as usize, "warning")
    );
    CommandResult::new(report, table, names)?.footer(footer).text(format)
}

fn row(host: &PrecheckHost, result: &PrecheckResult) -> [String; 7] {
    let word = match (result.ok, result.ignored, result.severity) {
        (true, ..) => "ok",
        (_, true, _) => "ignored",
        (_, _, PrecheckSeverity::Error) => "error",
        (_, _, PrecheckSeverity::Warning) => "warning",
    };
    let PrecheckResult { check, found, wanted, message, remedy, .. } = result.clone();
    let message = refusal_flags::reason(&message, remedy.as_ref());
    [host.host.to_string(), host.name.clone(), check, word.to_owned(), found, wanted, message]
}
