//! `kubeon meta uninstall`: removes the operator from a cluster.

use kubeon_engine::operator_uninstall::{UninstallOptions, uninstall};

use super::install::kubectl_for;
use crate::args::meta::MetaUninstall;
use crate::cli_error::CliError;
use crate::context::Context;

/// Removes the operator from a cluster.
pub(super) async fn run(context: &Context<'_>, args: &MetaUninstall) -> Result<(), CliError> {
    let kubectl = kubectl_for(context, args.kubeconfig.as_deref())?;
    let options =
        UninstallOptions { namespace: args.namespace.clone(), hand_over: args.hand_over, yes: args.yes };
    Ok(uninstall(&kubectl, &options, context.output).await?)
}
