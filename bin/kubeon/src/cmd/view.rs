//! `kubeon view`.

use kubeon_api::Version;
use kubeon_bundle::Catalogue;
use kubeon_bundle::catalogue::Channel;
use kubeon_engine::bundles;
use serde::Serialize;

use super::view_config;
use crate::args::Format;
use crate::args::day::{ViewArgs, ViewCommand, ViewComponent, ViewSupport};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// Shows the supported versions and components.
pub(crate) async fn run(context: &Context<'_>, args: &ViewArgs) -> Result<(), CliError> {
    match &args.command {
        None => crate::help::help(context.output, &["view"]),
        Some(ViewCommand::Support(args)) => support(context, args),
        Some(ViewCommand::Component(args)) => component(context, args),
        Some(ViewCommand::Config(args)) => view_config::run(context, args).await,
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Range {
    first: Version,
    last: Version,
}

/// A version with what `releases.yaml` says of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SupportedVersion {
    version: Version,
    /// The channels that name it.
    channels: Vec<&'static str>,
    /// The last day on which Kubernetes publishes fixes for its minor version.
    fixes_until: String,
}

impl SupportedVersion {
    fn of(catalogue: &Catalogue, version: Version) -> Self {
        let names = |channel: &Channel| catalogue.channel(*channel) == Some(version);
        let channels = Channel::ALL.into_iter().filter(names).map(Channel::as_str).collect();
        let fixes_until = catalogue.end_of_life(version).map(|end| end.to_string()).unwrap_or_default();
        Self { version, channels, fixes_until }
    }
}

/// Joins consecutive patch versions to ranges.
fn ranges(versions: impl Iterator<Item = Version>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for version in versions {
        match ranges.last_mut() {
            Some(Range { last, .. })
                if (last.major, last.minor, last.patch + 1)
                    == (version.major, version.minor, version.patch) =>
            {
                *last = version;
            }
            _ => ranges.push(Range { first: version, last: version }),
        }
    }
    ranges
}

fn support(context: &Context<'_>, args: &ViewSupport) -> Result<(), CliError> {
    let catalogue = bundles::catalogue()?;
    if args.format.output == Format::Wide {
        let versions: Vec<SupportedVersion> =
            catalogue.versions().map(|version| SupportedVersion::of(&catalogue, version)).collect();
        let mut table = TextTable::new(&["VERSION", "CHANNEL", "FIXES UNTIL"]);
        versions.iter().for_each(|row| {
            table.row([row.version.to_string(), row.channels.join(","), row.fixes_until.clone()]);
        });
        return context.output.result(&CommandResult::new(&versions, table, Vec::new())?.text(Format::Wide)?);
    }
    let ranges = ranges(catalogue.versions());
    let line = |range: &Range| {
        if range.first == range.last {
            range.first.to_string()
        } else {
            format!("{}-{}", range.first, range.last)
        }
    };
    let lines: Vec<String> = ranges.iter().map(line).collect();
    let mut table = TextTable::new(&[""]);
    lines.iter().for_each(|line| table.row([line.clone()]));
    let names = match args.format.output {
        Format::Name => catalogue.versions().map(|version| version.to_string()).collect(),
        _ => lines,
    };
    context.output.result(&CommandResult::new(&ranges, table, names)?.text(args.format.output)?)
}

fn component(context: &Context<'_>, args: &ViewComponent) -> Result<(), CliError> {
    let catalogue = bundles::catalogue()?;
    let known = args.version.parse::<Version>().ok().and_then(|version| catalogue.entry(version).ok());
    let Some(entry) = known else {
        let error = CliError::refused(format!("input version {} is not support", args.version));
        return Err(error.next_command("see", "kubeon view support"));
    };
    #[derive(Serialize)]
    struct Row {
        name: String,
        version: String,
    }
    let mut rows: Vec<Row> = entry
        .components
        .iter()
        .map(|component| Row { name: component.name.clone(), version: component.version.clone() })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    let mut table = TextTable::new(&["COMPONENT", "VERSION"]);
    rows.iter().for_each(|row| table.row([row.name.clone(), row.version.clone()]));
    let names = rows.iter().map(|row| row.name.clone()).collect();
    context.output.result(&CommandResult::new(&rows, table, names)?.text(args.format.output)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_consecutive_versions() {
        let versions =
            ["v1.34.4", "v1.35.4", "v1.36.1", "v1.36.2", "v1.36.4"].map(|text| text.parse().unwrap());
        let text: Vec<_> = ranges(versions.into_iter())
            .iter()
            .map(|range| format!("{}-{}", range.first, range.last))
            .collect();
        assert_eq!(text, ["v1.34.4-v1.34.4", "v1.35.4-v1.35.4", "v1.36.1-v1.36.2", "v1.36.4-v1.36.4"]);
    }
}
