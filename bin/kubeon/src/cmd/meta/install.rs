//! `kubeon meta install`: installs the operator into an existing cluster.

use kubeon_engine::kubectl::Kubectl;
use kubeon_engine::operator_install::{install, manifest};

use crate::args::meta::MetaInstall;
use crate::cli_error::CliError;
use crate::context::Context;

/// Installs the operator into a cluster.
pub(super) async fn run(context: &Context<'_>, args: &MetaInstall) -> Result<(), CliError> {
    let options = args.install.options();
    if args.dry_run {
        return context.output.result(&manifest(&options)?);
    }
    let kubeconfig = match &args.kubeconfig {
        Some(given) => given.clone(),
        None => {
            let engine = context.engine()?;
            engine.store.kubeconfig_path(&engine.name(None)?)
        }
    };
    let kubectl = Kubectl::find(&context.engine_environment(), kubeconfig)?;
    Ok(install(&kubectl, &options, args.wait, context.output).await?)
}
