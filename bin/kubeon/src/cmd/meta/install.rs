//! `kubeon meta install`: installs the operator into an existing cluster.

use std::path::Path;

use kubeon_engine::kubectl::Kubectl;
use kubeon_engine::operator_install::{install, manifest};
use kubeon_engine::{released_images, trusted_signers};
use kubeon_install::InstallOptions;

use crate::args::meta::MetaInstall;
use crate::cli_error::CliError;
use crate::context::Context;

/// Installs the operator into a cluster.
pub(super) async fn run(context: &Context<'_>, args: &MetaInstall) -> Result<(), CliError> {
    let environment = context.engine_environment();
    let trusted_keys = trusted_signers::lines(&environment, args.install.trusted_keys.as_deref())?;
    let mut options = InstallOptions { trusted_keys, ..args.install.options() };
    if let Some(program) = &environment.program {
        options.pin(&released_images::digests(program)?);
    }
    if args.dry_run {
        return context.output.result(&manifest(&options)?);
    }
    let kubectl = kubectl_for(context, args.kubeconfig.as_deref())?;
    Ok(install(&kubectl, &options, args.wait, context.output).await?)
}

/// kubectl for the given kubeconfig, or for the cluster that `use` chose.
pub(super) fn kubectl_for(context: &Context<'_>, kubeconfig: Option<&Path>) -> Result<Kubectl, CliError> {
    let kubeconfig = match kubeconfig {
        Some(given) => given.to_owned(),
        None => {
            let engine = context.engine()?;
            engine.store.kubeconfig_path(&engine.name(None)?)
        }
    };
    Ok(Kubectl::find(&context.engine_environment(), kubeconfig)?)
}
