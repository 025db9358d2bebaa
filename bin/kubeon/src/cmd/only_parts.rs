//! `--only-parts` of `create` and `addon`.

use std::time::{Duration, Instant};

use kubeon_api::ClusterName;
use kubeon_engine::change::parts::{PartsOutcome, PutParts};
use kubeon_engine::change::prepare;
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::engine::Engine;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::args::Format;
use crate::cli_error::CliError;
use crate::cmd::change::ChangeFlags;
use crate::context::Context;
use crate::interrupt;
use crate::output::{CommandResult, TextTable, words};
use crate::report;

/// Puts the parts of a change onto the hosts and prints the result.
///
/// # Errors
/// When the change is refused or a part is missing on a host that answers.
pub(super) async fn put_parts(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    flags: &ChangeFlags,
) -> Result<(), CliError> {
    let begin = Instant::now();
    let name = target.spec.name.clone();
    let rest = context.continue_command("create", &name);
    let prepared = prepare(engine, target, &flags.options()).await?;
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    match prepared.put_parts(&cancellation).await? {
        PartsOutcome::Incomplete(reconciled) => {
            let again = format!("{rest} --only-parts");
            Err(report::incomplete(&reconciled, cancellation.is_cancelled(), &again))
        }
        PartsOutcome::Put(put) => show(context, &name, &put, begin.elapsed(), flags.format, &rest),
    }
}

fn show(
    context: &Context<'_>,
    name: &ClusterName,
    put: &PutParts,
    took: Duration,
    format: Format,
    rest: &str,
) -> Result<(), CliError> {
    let output = context.output;
    match format {
        Format::Table | Format::Wide => output.result(&text(name, put, took))?,
        other => {
            let result = PartsResult {
                cluster: name.to_string(),
                version: put.version.to_string(),
                changed: put.parts > 0,
                parts: put.parts,
                bytes: put.bytes,
                hosts: put.hosts,
                unreachable: put.unreachable.clone(),
                seconds: took.as_secs_f64(),
            };
            let names = vec![result.cluster.clone()];
            output.result(&CommandResult::new(&result, TextTable::new(&[]), names)?.text(other)?)?;
        }
    }
    output.info(&format!("next: kubeon plan {name} · {rest}"));
    Ok(())
}

/// The result of `--only-parts`, with the fields of a change.
#[derive(Serialize)]
struct PartsResult {
    cluster: String,
    version: String,
    /// Whether any part came onto a host.
    changed: bool,
    /// Parts that came onto hosts.
    parts: usize,
    /// Their bytes, compressed.
    bytes: u64,
    /// Hosts that have all their parts.
    hosts: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreachable: Vec<String>,
    seconds: f64,
}

fn text(name: &ClusterName, put: &PutParts, took: Duration) -> String {
    let (hosts, took) = (words::count(put.hosts, "host"), words::time(took));
    let without = match put.unreachable.as_slice() {
        [] => String::new(),
        names => format!(", without {}", words::list(names)),
    };
    let have = if put.hosts == 1 { "has" } else { "have" };
    if put.parts == 0 {
        return format!("{name}: {hosts} {have} all parts of {}{without} (checked in {took})\n", put.version);
    }
    let (parts, size) = (words::count(put.parts, "part"), words::size(put.bytes));
    format!(
        "{name}: {hosts} {have} all parts of {}{without}: {parts} of {size} came in {took}; nothing else was changed\n",
        put.version
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_came_and_who_lacks_it() {
        let put = PutParts {
            version: "v1.36.3".parse().unwrap(),
            parts: 22,
            bytes: 300 << 20,
            hosts: 2,
            unreachable: vec!["h3".to_owned()],
        };
        let name: ClusterName = "demo".parse().unwrap();
        let took = Duration::from_secs(20);
        assert_eq!(
            text(&name, &put, took),
            "demo: 2 hosts have all parts of v1.36.3, without h3: 22 parts of 300 MiB came in 20.0 s; nothing else was changed\n"
        );
        let none = PutParts { parts: 0, bytes: 0, hosts: 1, unreachable: Vec::new(), ..put };
        assert_eq!(text(&name, &none, took), "demo: 1 host has all parts of v1.36.3 (checked in 20.0 s)\n");
    }
}
