//! `kubeon addon` and `kubeon delon`: more or fewer workers, changed as by `create`.

use kubeon_plan::{DesiredCluster, HostSpec, Refusal};

use crate::args::scale::{AddonArgs, DelonArgs};
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::plan;
use crate::context::Context;
use kubeon_engine::cluster_request::HostRequest;
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::cluster_target::TargetOptions;
use kubeon_engine::engine::{self, StoredCluster, members};
use kubeon_engine::login_merge::refuse_unused_flags;
use kubeon_engine::login_request::HostLoginRequest;
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::request_inventory::merge_inventory_logins;
use kubeon_engine::selector::Selector;

/// Adds workers.
pub(super) async fn add(context: &Context<'_>, args: &AddonArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(args.name.as_deref())?;
    let mut refusals = Vec::new();
    let requested = args.nodes.hosts(&mut refusals);
    for master in &requested.masters {
        let reason = "adding masters is not there yet: -w adds workers";
        refusals.push(refusal(format!("-m {}", master.address), reason));
    }
    let mut spec = state.spec.clone();
    for HostRequest { address, name, labels, login: _ } in requested.workers.iter().cloned() {
        if spec.hosts().any(|host| host.address == address) {
            let reason = format!("is a node of {} already (Cluster ip is duplicate)", state.name);
            refusals.push(refusal(format!("-w {address}"), reason));
        } else {
            spec.workers.push(HostSpec { address, name, labels });
        }
    }
    if refusals.is_empty() && requested.workers.is_empty() {
        let stop = CliError::refused("no worker is named");
        return Err(stop.hint(format!("try: kubeon addon {} -w ADDRESS", state.name)));
    }
    if !refusals.is_empty() {
        return Err(CliError::refusals(state.name.as_str(), refusals, &[]));
    }
    let (name, flags) = (state.name.clone(), LoginRequests::from(&args.nodes));
    let options = TargetOptions {
        logins: flags.clone(),
        skip_hosts: args.skip_hosts.clone(),
        ignore: engine::ignored_checks(&args.ignore.ignore)?,
        ..TargetOptions::default()
    };
    let mut target = ClusterTarget::changed(&engine, state, spec, options)?;
    for HostRequest { address, login, .. } in requested.workers {
        target.logins.insert(address, HostLoginRequest { flags: login, ..HostLoginRequest::default() });
    }
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    if args.dry_run {
        let command = context.typed_as("addon", "addon").unwrap_or_else(|| format!("kubeon addon {name}"));
        return plan::create(context, &engine, target, &args.contact.options(), command, &args.format).await;
    }
    let flags = ChangeFlags {
        command: "kubeon addon",
        host_keys: args.contact.options(),
        hold: args.hold.wanted(),
        yes: true,
        format: args.format.output,
    };
    make(context, &engine, target, &flags).await
}

/// Removes workers.
pub(super) async fn remove(context: &Context<'_>, args: &DelonArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let spec = fewer(&state, &args.selector)?;
    let (name, flags) = (state.name.clone(), LoginRequests::from(&args.login));
    let options = TargetOptions {
        logins: flags.clone(),
        skip_hosts: args.skip_hosts.clone(),
        drain_seconds: args.leave.drain_timeout,
        ignore: engine::ignored_checks(&args.ignore.ignore)?,
        ..TargetOptions::default()
    };
    let mut target = ClusterTarget::changed(&engine, state, spec, options)?;
    target.logins = merge_inventory_logins(&args.inventory.files(), &flags, &target.state, target.logins)?;
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    if args.dry_run {
        let plain = || format!("kubeon delon {name} {}", args.selector);
        let command = context.typed_as("delon", "delon").unwrap_or_else(plain);
        return plan::create(context, &engine, target, &args.contact.options(), command, &args.format).await;
    }
    let flags = ChangeFlags {
        command: "kubeon delon",
        host_keys: args.contact.options(),
        hold: args.hold.wanted(),
        yes: args.yes,
        format: args.format.output,
    };
    make(context, &engine, target, &flags).await
}

/// The specification without the nodes that the selector means.
fn fewer(state: &StoredCluster, selector: &str) -> Result<DesiredCluster, CliError> {
    let members = members(&state.spec);
    let selector = Selector::parse(&format!("{}@{}", state.name, selector.trim_start_matches('@')))?;
    let chosen = selector.choose(&members).map_err(|error| leaving(error.into(), state))?;
    let masters = chosen.iter().filter(|member| member.master).count();
    if masters == state.spec.masters.len() {
        return Err(CliError::refused(format!("Selector[{selector}] no master exists after delete")));
    }
    if let Some(master) = chosen.iter().find(|member| member.master) {
        let stop =
            CliError::refused(format!("removing masters is not there yet: {} is a master", master.name));
        return Err(stop.row("workers", format!("kubeon delon {} @w*", state.name)));
    }
    let mut spec = state.spec.clone();
    spec.workers.retain(|host| !chosen.iter().any(|member| member.address == host.address.ip()));
    Ok(spec)
}

/// Workers that are leaving already are no nodes any more.
fn leaving(stop: CliError, state: &StoredCluster) -> CliError {
    let names = state
        .leaving
        .iter()
        .map(|(address, name)| name.as_ref().map_or_else(|| address.to_string(), ToString::to_string));
    match names.collect::<Vec<_>>() {
        names if names.is_empty() => stop,
        names => {
            stop.row("leaving", names.join(" ")).hint(format!("finish with: kubeon create {}", state.name))
        }
    }
}

fn refusal(subject: String, reason: impl Into<String>) -> Refusal {
    Refusal::argument(subject, reason)
}
