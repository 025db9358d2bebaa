//! `kubeon meta restore`: creates the objects of an export in another meta cluster.

use std::collections::BTreeMap;

use kubeon_engine::encrypted_file::EncryptionKey;
use kubeon_engine::meta_export::read_export;
use kubeon_engine::meta_restore::{MetaRestoreOptions, MetaRestoreReport, restore};

use super::export::warn;
use super::install::kubectl_for;
use crate::args::meta::MetaRestoreArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// Restores the objects.
pub(super) async fn run(context: &Context<'_>, args: &MetaRestoreArgs) -> Result<(), CliError> {
    let key = args.access.key.as_deref().map(EncryptionKey::read).transpose()?;
    let export = read_export(&args.file, key.as_ref(), context.output)?;
    let kubectl = kubectl_for(context, args.access.kubeconfig.as_deref())?;
    let options = MetaRestoreOptions {
        namespace: args.access.namespace.clone(),
        replace: args.replace,
        dry_run: args.dry_run,
    };
    let report = restore(&kubectl, &export, &options, context.output).await?;
    warn(context, &report.notes);
    let names = report.created.iter().chain(&report.replaced).cloned().collect();
    let footer = format!("{} objects were as in the export.\n", report.unchanged);
    let result = CommandResult::new(&report, table(&report), names)?.footer(footer);
    context.output.result(&result.text(args.format.output)?)?;
    if !args.dry_run {
        context
            .output
            .info("start the operator: kubeon meta install, with the flags of the old meta cluster");
    }
    Ok(())
}

fn table(report: &MetaRestoreReport) -> TextTable {
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (column, objects) in [&report.created, &report.replaced].into_iter().enumerate() {
        for object in objects {
            let kind = object.split(' ').next().unwrap_or_default();
            counts.entry(kind).or_default()[column] += 1;
        }
    }
    let mut table = TextTable::new(&["KIND", "CREATED", "REPLACED"]);
    for (kind, [created, replaced]) in counts {
        table.row([kind.to_owned(), created.to_string(), replaced.to_string()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_objects_by_kind() {
        let titles = |titles: &[&str]| titles.iter().map(|title| (*title).to_owned()).collect();
        let report = MetaRestoreReport {
            created: titles(&["Secret a/x", "Secret a/y", "Cluster z"]),
            replaced: titles(&["Secret a/z"]),
            ..MetaRestoreReport::default()
        };
        let wanted = "KIND     CREATED  REPLACED\nCluster  1        0\nSecret   2        1\n";
        assert_eq!(table(&report).text(false), wanted);
    }
}
