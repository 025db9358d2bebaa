//! `kubeon precheck`.

use kubeon_plan::Artifacts;
use kubeon_plan::precheck::{self, ConnectionTarget};
use kubeon_ports::Clock as _;
use kubeon_wire::{PrecheckHost, PrecheckReport, PrecheckResult, PrecheckSeverity, Progress};

use crate::args::Format;
use crate::args::precheck::PrecheckArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable, words};
use crate::refusal_flags;
use crate::target::{self, AskedBy};
use kubeon_engine::artifacts::artifacts;
use kubeon_engine::bundles;
use kubeon_engine::checked::{self, PrecheckProbe};
use kubeon_engine::contact::ContactPurpose;
use kubeon_engine::engine::MachineClock;
use kubeon_engine::error::note_text;

/// Where registries listen.
const REGISTRY_PORT: u16 = 443;

/// Checks hosts and writes nothing anywhere.
pub(super) async fn run(context: &Context<'_>, args: &PrecheckArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let places = registries(&args.registry)?;
    let target = target::find(&engine, &args.cluster, AskedBy::Precheck)?;
    target.notes.iter().for_each(|note| context.output.warn(&note_text(note)));
    // Without a bundle only the room for its parts is not known.
    let parts = bundles::find(&engine.environment, target.spec.version)
        .map_or_else(|_| Artifacts::default(), |bundle| artifacts(&bundle));
    let logins = engine.logins(&target.logins)?;
    let contact = engine
        .contact(&target.spec.name, logins, &args.cluster.contact.options(), ContactPurpose::Look)
        .await?;
    let intent = target.intent(parts);
    let asking = PrecheckProbe::about(&intent, &contact.hosts, &places);
    let hosts = intent.spec.hosts().map(|host| host.address);
    let snapshot = kubeon_observe::snapshot(&asking, hosts, MachineClock.now_seconds()).await;
    let report = precheck::precheck(&intent, &snapshot);
    context.output.result(&text(&report, args.format.output)?)?;
    let ended = if report.ok { Ok(()) } else { Err(checked::refusal(&report, None).into()) };
    context.output.progress(&Progress::Precheck { report });
    ended
}

fn registries(given: &[String]) -> Result<Vec<ConnectionTarget>, CliError> {
    let place = |text: &String| {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, port.parse().ok()),
            None => (text.as_str(), Some(REGISTRY_PORT)),
        };
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
        match port {
            Some(port) if plain => Ok((name.to_owned(), port)),
            _ => Err(CliError::refused(format!("--registry {text:?} is not HOST or HOST:PORT"))),
        }
    };
    given.iter().map(place).collect()
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
    let foot = format!(
        "{hosts}, {checks}: {}, {}\n",
        words::count(report.errors as usize, "error"),
        words::count(report.warnings as usize, "warning")
    );
    CommandResult::new(report, table, names)?.foot(foot).text(format)
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
