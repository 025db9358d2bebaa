//! `kubeon meta up`: lab, meta cluster, images, operator, and a Secret to log in to the other hosts with.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use kubeon_install::{InstallOptions, names};
use kubeon_lab::{Lab, LabHost, LabName};

use super::install::put;
use super::kubectl::Kubectl;
use crate::args::meta::MetaUp;
use crate::args::{CliCommand, CommandLine};
use crate::cli_error::CliError;
use crate::cmd::{choose, create, image, lab as lab_command};
use crate::context::Context;
use kubeon_engine::error::chain;

/// Seconds for an operator whose image is already on its node.
const OPERATOR_SECONDS: u32 = 180;
/// The namespace of kube-on-kube's samples.
const SAMPLES: &str = "kubeonkube";
/// The Secret that logs in to the lab's hosts.
const LOGIN_SECRET: &str = "lab-login";

/// Does all of it; what stands already is found and left.
pub(super) async fn run(context: &Context<'_>, args: &MetaUp) -> Result<(), CliError> {
    let images = images(context, &args.images)?;
    let count = args.hosts.to_string();
    run_command(context, &["lab", "up", "--lab", &args.lab, "--hosts", &count, "--output", "name"]).await?;
    let lab = lab(context, &args.lab)?;
    let hosts = lab.hosts().map_err(|error| CliError::failed(chain(&error)))?;
    let (Some(first), others) = (hosts.first(), hosts.get(1..).unwrap_or_default()) else {
        return Err(CliError::failed(format!("lab {} has no host", args.lab)));
    };
    let address = first.address.to_string();
    run_command(context, &["create", &args.name, &args.version, "-m", &address]).await?;
    run_command(context, &["use", &args.name]).await?;
    for image in &images {
        run_command(context, &["image", "load", image, &args.name]).await?;
    }
    let engine = context.engine()?;
    let kubeconfig = engine.store.kubeconfig_path(&engine.name(Some(&args.name))?);
    let kubectl = Kubectl::at_hand(context, kubeconfig)?;
    let mut options = args.install.options();
    if args.install.watch_namespaces.is_empty() {
        options.watch_namespaces.push(SAMPLES.to_owned());
    }
    put(context, &kubectl, &options, OPERATOR_SECONDS).await?;
    logins(&kubectl, &lab, &options).await?;
    tell(context, others, &options)
}

/// The archives that a meta cluster without a registry needs.
fn images(context: &Context<'_>, folder: &Path) -> Result<Vec<String>, CliError> {
    let wanted = ["operator", "runner", "bundle"].map(|name| folder.join(format!("kubeon-{name}.tar")));
    let missing: Vec<&PathBuf> = wanted.iter().filter(|file| !file.is_file()).collect();
    if missing.is_empty() {
        return Ok(wanted.iter().map(|file| file.display().to_string()).collect());
    }
    let stop = CliError::refused("the images of the operator are not there");
    let stop = missing.into_iter().fold(stop, |stop, file| stop.row("missing", context.shorten(file)));
    Err(stop.hint("make them in a checkout with: cargo xtask images, or name their folder with --images"))
}

/// Another command of this program, as if a person had typed it.
async fn run_command(context: &Context<'_>, words: &[&str]) -> Result<(), CliError> {
    context.output.say(&format!("kubeon {}", words.join(" ")));
    let cli = CommandLine::try_parse_from(std::iter::once("kubeon").chain(words.iter().copied()))
        .map_err(|error| CliError::failed(error.to_string()))?;
    match cli.command {
        Some(CliCommand::Lab(args)) => lab_command::run(context, &args).await,
        Some(CliCommand::Create(args)) => create::run(context, &args).await,
        Some(CliCommand::Use(args)) => choose::run(context, &args).await,
        Some(CliCommand::Image(args)) => image::run(context, &args).await,
        _ => Err(CliError::failed(format!("kubeon {} is not a part of meta up", words.join(" ")))),
    }
}

fn lab(context: &Context<'_>, name: &str) -> Result<Lab, CliError> {
    let places = context.lab_places()?;
    let name: LabName = name.parse().map_err(|error: kubeon_lab::Error| CliError::refused(chain(&error)))?;
    Lab::open(&places, &name).map_err(|error| CliError::failed(chain(&error)))
}

/// The key of the lab's hosts, as a Secret in every namespace that the operator looks after.
async fn logins(kubectl: &Kubectl, lab: &Lab, options: &InstallOptions) -> Result<(), CliError> {
    let file = lab.key_path();
    let key = tokio::fs::read_to_string(&file)
        .await
        .map_err(|error| CliError::failed(format!("cannot read {}: {error}", file.display())))?;
    for namespace in options.namespaces() {
        let secret = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": LOGIN_SECRET, "namespace": namespace},
            "stringData": {"ssh-privatekey": key},
        });
        let apply = ["apply", "--server-side", "--field-manager=kubeon", "-f", "-"];
        kubectl.run(&apply, Some(&secret.to_string())).await?;
    }
    Ok(())
}

fn tell(context: &Context<'_>, others: &[LabHost], options: &InstallOptions) -> Result<(), CliError> {
    let mut text = format!("the Secret {LOGIN_SECRET} logs in to the hosts that are free:\n");
    for host in others {
        text.push_str(&format!("  {:4}  {}\n", host.name, host.address));
    }
    context.output.result(&text)?;
    context.output.say(&format!(
        "logs: kubectl -n {} logs -f deployment/{}",
        options.namespace,
        names::OPERATOR
    ));
    Ok(())
}
