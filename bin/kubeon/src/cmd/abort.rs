//! `kubeon abort`.

use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::way_back::way_back;

use crate::args::upgrade::AbortArgs;
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::plan;
use crate::context::Context;

/// Goes back to the version before an upgrade that is not complete.
pub(super) async fn run(context: &Context<'_>, args: &AbortArgs) -> Result<(), CliError> {
    let (engine, change) = (context.engine()?, &args.change);
    let back = way_back(engine.find(Some(&args.name))?)?;
    let name = &args.name;
    context.output.info(&format!("{name}: keeps {}; the change to {} ends here", back.keeps, back.given_up));
    let target = ClusterTarget::stored(&engine, back.state, change.target_options()?)?;
    if change.dry_run {
        let command =
            context.typed_as("abort", "abort").unwrap_or_else(|| format!("kubeon abort {}", args.name));
        let options = change.contact.options();
        return plan::create(context, &engine, target, &options, command, change.format.output).await;
    }
    let flags = ChangeFlags::of("kubeon abort", change);
    make(context, &engine, target, &flags).await
}
