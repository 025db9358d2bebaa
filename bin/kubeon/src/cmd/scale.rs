//! `kubeon addon`, `kubeon delon`, `kubeon replace` and `kubeon readdress`: add, remove and replace hosts, and change the
//! address of one.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::{HostAddress, HostName, HostRole};
use kubeon_engine::cluster_request::HostRequest;
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::engine::{Engine, ignored_checks};
use kubeon_engine::login_request::{LoginRequest, LoginRequests};
use kubeon_engine::readdress::{NewAddress, readdressed};
use kubeon_engine::scale::{AddedHosts, replaced, with_hosts, without_hosts};

use crate::args::scale::{AddonArgs, DelonArgs, ReaddressArgs, ReplaceArgs};
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::only_parts::put_parts;
use crate::cmd::plan;
use crate::context::Context;

/// Adds hosts.
pub(super) async fn add(context: &Context<'_>, args: &AddonArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(args.name.as_deref())?;
    let (name, added) = (state.name.clone(), added_hosts(args));
    if !args.nodes.names_hosts() && !args.etcd_hosts.names_hosts() && added.refusals.is_empty() {
        let error = CliError::refused("no host is named");
        return Err(error.next_command("try", format!("kubeon addon {name} -w ADDRESS")));
    }
    let options = TargetOptions {
        logins: LoginRequests::from(&args.nodes),
        skip_hosts: args.skip_hosts.clone(),
        ignore: ignored_checks(&args.ignore.ignore)?,
        max_unavailable: args.rolling.max_unavailable,
        ..TargetOptions::default()
    };
    let mut target = with_hosts(&engine, state, added, options)?;
    target.only_parts = args.only_parts.only_parts;
    let command = context.typed_as("addon", "addon").unwrap_or_else(|| format!("kubeon addon {name}"));
    let flags = ChangeFlags {
        command: "kubeon addon",
        host_keys: args.contact.options(),
        pre_apply_wait: args.pre_apply_wait.wait(),
        yes: true,
        approved: args.approved.read()?,
        format: args.format.output,
    };
    show_or_make(context, &engine, target, &flags, args.dry_run.then_some(command)).await
}

fn added_hosts(args: &AddonArgs) -> AddedHosts {
    let mut refusals = Vec::new();
    let hosts = args.nodes.hosts(&mut refusals);
    let login = LoginRequests::from(&args.nodes).of(&HostRole::Etcd);
    let etcd_hosts = args.etcd_hosts.hosts(&login, &mut refusals);
    AddedHosts { masters: hosts.masters, workers: hosts.workers, etcd_hosts, refusals }
}

/// A host without labels and taints.
fn host(
    address: HostAddress,
    internal_address: Option<HostAddress>,
    name: Option<HostName>,
    login: LoginRequest,
) -> HostRequest {
    HostRequest { address, internal_address, name, labels: BTreeMap::new(), taints: BTreeSet::new(), login }
}

/// Removes hosts.
pub(super) async fn remove(context: &Context<'_>, args: &DelonArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let name = state.name.clone();
    let options = TargetOptions {
        logins: LoginRequests::from(&args.login),
        skip_hosts: args.skip_hosts.clone(),
        drain_seconds: args.leave.drain_timeout,
        ignore: ignored_checks(&args.ignore.ignore)?,
        max_unavailable: args.rolling.max_unavailable,
        ..TargetOptions::default()
    };
    let target = without_hosts(&engine, state, &args.selector, &args.inventory.files(), options)?;
    let plain = || format!("kubeon delon {name} {}", args.selector);
    let command = context.typed_as("delon", "delon").unwrap_or_else(plain);
    let flags = ChangeFlags {
        command: "kubeon delon",
        host_keys: args.contact.options(),
        pre_apply_wait: args.pre_apply_wait.wait(),
        yes: args.yes,
        approved: args.approved.read()?,
        format: args.format.output,
    };
    show_or_make(context, &engine, target, &flags, args.dry_run.then_some(command)).await
}

/// Replaces a master or a host of etcd that is lost.
pub(super) async fn replace(context: &Context<'_>, args: &ReplaceArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let new = host(args.new, args.internal_address, args.new_name.clone(), LoginRequest::default());
    let plain = || format!("kubeon replace {} {} {}", args.name, args.old, args.new);
    let command = context.typed_as("replace", "replace").unwrap_or_else(plain);
    let target = replaced(&engine, state, &args.old, new, args.change.target_options()?)?;
    let flags = ChangeFlags {
        command: "kubeon replace",
        host_keys: args.change.contact.options(),
        pre_apply_wait: args.change.pre_apply_wait.wait(),
        yes: args.yes,
        approved: None,
        format: args.change.format.output,
    };
    show_or_make(context, &engine, target, &flags, args.change.dry_run.then_some(command)).await
}

/// Changes the address of a host.
pub(super) async fn readdress(context: &Context<'_>, args: &ReaddressArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let plain = || format!("kubeon readdress {} {} {}", args.name, args.host, args.new);
    let command = context.typed_as("readdress", "readdress").unwrap_or_else(plain);
    let to = NewAddress { login: args.new, internal: args.internal_address };
    let target = readdressed(&engine, state, &args.host, to, args.change.target_options()?)?;
    let flags = ChangeFlags {
        command: "kubeon readdress",
        host_keys: args.change.contact.options(),
        pre_apply_wait: args.change.pre_apply_wait.wait(),
        yes: true,
        approved: None,
        format: args.change.format.output,
    };
    show_or_make(context, &engine, target, &flags, args.change.dry_run.then_some(command)).await
}

/// Makes the change, or shows the plan of a dry run with the command that applies it.
async fn show_or_make(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    flags: &ChangeFlags,
    dry_run: Option<String>,
) -> Result<(), CliError> {
    match dry_run {
        Some(command) => plan::create(context, engine, target, &flags.host_keys, command, flags.format).await,
        None if target.only_parts => put_parts(context, engine, target, flags).await,
        None => make(context, engine, target, flags).await,
    }
}
