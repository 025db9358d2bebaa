//! `kubeon meta export`: writes the objects of the meta cluster to a file.

use std::collections::BTreeMap;

use kubeon_engine::encrypted_file::EncryptionKey;
use kubeon_engine::meta_export::{ObjectNote, export, require_writable, write_export};
use serde::Serialize;

use super::install::kubectl_for;
use crate::args::meta::MetaExportArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// The result for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportView<'e> {
    file: String,
    encrypted: bool,
    objects: BTreeMap<&'static str, usize>,
    /// Operations that have not ended.
    open_operations: Vec<&'e str>,
    notes: &'e [ObjectNote],
}

/// Writes the file.
pub(super) async fn run(context: &Context<'_>, args: &MetaExportArgs) -> Result<(), CliError> {
    require_writable(&args.file)?;
    let key = args.access.key.as_deref().map(EncryptionKey::read).transpose()?;
    let kubectl = kubectl_for(context, args.access.kubeconfig.as_deref())?;
    let export = export(&kubectl, &args.access.namespace).await?;
    write_export(&args.file, &export, key.as_ref())?;
    let file = args.file.display().to_string();
    warn(context, &export.notes);
    let open_operations = export.open_operations();
    if !open_operations.is_empty() {
        context.output.warn(&format!(
            "operations that have not ended: {}; a restored one whose Job runs now is Failed, because no Job is restored",
            open_operations.join(", ")
        ));
    }
    let view = ExportView {
        file: file.clone(),
        encrypted: key.is_some(),
        objects: export.counts(),
        open_operations,
        notes: &export.notes,
    };
    let mut table = TextTable::new(&["KIND", "OBJECTS"]);
    view.objects.iter().for_each(|(kind, count)| table.row([(*kind).to_owned(), count.to_string()]));
    let advice = if view.encrypted { "Keep the key elsewhere" } else { "It is not encrypted (--key)" };
    let footer =
        format!("{file} holds the keys and credentials of all clusters: keep it secret. {advice}.\n");
    let result = CommandResult::new(&view, table, vec![file])?.footer(footer);
    context.output.result(&result.text(args.format.output)?)
}

/// Reports what a restored meta cluster will not have.
pub(super) fn warn(context: &Context<'_>, notes: &[ObjectNote]) {
    for ObjectNote { object, reason } in notes {
        context.output.warn(&format!("{object}: {reason}"));
    }
}
