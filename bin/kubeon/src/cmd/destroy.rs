//! `kubeon destroy`.

use std::time::Instant;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_engine::change::ChangeOptions;
use kubeon_engine::destroy::{DestroyOutcome, DestroyRequest, DestroyTarget};
use kubeon_engine::login_request::LoginRequests;
use tokio_util::sync::CancellationToken;

use super::{cloud, plan};
use crate::args::Format;
use crate::args::day::DestroyArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::interrupt;
use crate::output::words;
use crate::report;

/// Removes a cluster from its hosts.
pub(super) async fn run(context: &Context<'_>, args: &DestroyArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let target = DestroyTarget::find(&engine, &request(args))?;
    let (name, begin, host_keys) = (target.state.name.clone(), Instant::now(), args.contact.options());
    if args.dry_run {
        let plan = target.plan(&engine, &host_keys).await?;
        let command = context.continue_command("destroy", &name);
        let (intent, took) = (Some(&target.intent), begin.elapsed());
        plan::show(context, &plan, intent, took, &command, args.format.output)?;
        cloud::mention(context, &name, target.state.cloud_routes.as_ref(), "are removed first");
        return Ok(());
    }
    let options = ChangeOptions {
        command: "kubeon destroy",
        host_keys: &host_keys,
        pre_apply_wait: args.pre_apply_wait.wait(),
        yes: args.yes,
        approved: None,
    };
    let prepared = target.prepare(&engine, &options).await?;
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    match prepared.make(&cancellation).await? {
        DestroyOutcome::Destroyed { hosts, not_rebooted } => {
            show(context, args, &name, hosts, begin)?;
            refuse_unrebooted(not_rebooted)
        }
        DestroyOutcome::Incomplete(reconciled) => {
            let next_command = format!("{} --yes", context.continue_command("destroy", &name));
            Err(report::incomplete(&reconciled, cancellation.is_cancelled(), &next_command))
        }
    }
}

fn request(args: &DestroyArgs) -> DestroyRequest<'_> {
    DestroyRequest {
        name: args.name.as_deref(),
        skip_hosts: &args.skip_hosts,
        logins: LoginRequests::from(&args.login),
        inventory: args.inventory.files(),
        reboot: args.force,
    }
}

/// The error about the hosts that did not accept their reboot. The cluster is gone all the same.
fn refuse_unrebooted(hosts: Vec<(HostAddress, String)>) -> Result<(), CliError> {
    if hosts.is_empty() {
        return Ok(());
    }
    let mut error = CliError::failed(format!("{} did not reboot", words::count(hosts.len(), "host")));
    error.rows = hosts.into_iter().map(|(host, why)| (host.to_string(), why)).collect();
    Err(error)
}

fn show(
    context: &Context<'_>,
    args: &DestroyArgs,
    name: &ClusterName,
    hosts: usize,
    begin: Instant,
) -> Result<(), CliError> {
    let took = words::time(begin.elapsed());
    let what = if hosts == 0 {
        "no host was contacted".to_owned()
    } else {
        format!("{} cleaned", words::count(hosts, "host"))
    };
    match args.format.output {
        Format::Table | Format::Wide => {
            context.output.result(&format!("{name} is destroyed: {what}, {took}\n"))
        }
        Format::Name => context.output.result(&format!("{name}\n")),
        Format::Json | Format::Yaml => {
            let value = serde_json::json!({ "cluster": name, "destroyed": true, "hosts": hosts });
            let answer =
                crate::output::CommandResult::new(&value, crate::output::TextTable::new(&[]), Vec::new())?;
            context.output.result(&answer.text(args.format.output)?)
        }
    }
}
