//! `kubeon meta up`: creates a lab, a meta cluster with images and operator, and a Secret with the login of
//! the other hosts.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use kubeon_api::Version;
use kubeon_bundle::image::{ImageContent, full_name};
use kubeon_engine::error::chain;
use kubeon_engine::image_load::LoadableArchive;
use kubeon_engine::kubectl::Kubectl;
use kubeon_engine::operator_install::{create_login_secrets, install};
use kubeon_engine::trusted_signers;
use kubeon_install::{InstallOptions, names};
use kubeon_lab::{Lab, LabHost, LabName};

use crate::args::meta::MetaUp;
use crate::args::{CliCommand, CommandLine};
use crate::cli_error::CliError;
use crate::cmd::{choose, create, image, lab as lab_command};
use crate::context::Context;
use crate::next_step::NextStep;
use crate::remedies;

/// Time limit for the start of the operator in seconds. Its image is already on the node.
const OPERATOR_SECONDS: u32 = 180;
/// The namespaces of the examples, and of the samples of kube-on-kube.
const EXAMPLES: [&str; 2] = ["default", "kubeonkube"];
/// The Secret with the login of the lab's hosts.
const LOGIN_SECRET: &str = "lab-login";

/// Runs all steps. Steps that are up to date change nothing.
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
    let kubectl = Kubectl::find(&engine.environment, kubeconfig)?;
    let mut options = args.install.options();
    // The webhook has the name that the API servers of this cluster have a certificate for.
    options.only_api_servers |= options.namespace == names::NAMESPACE;
    options.mount_bundle_image |= has_image_volumes(&args.version);
    options.trusted_keys = trusted_signers::lines(&engine.environment, args.install.trusted_keys.as_deref())?;
    if args.install.watch_namespaces.is_empty() {
        options.watch_namespaces = EXAMPLES.map(str::to_owned).to_vec();
    }
    pin(&mut options, &images)?;
    install(&kubectl, &options, OPERATOR_SECONDS, context.output).await?;
    create_login_secrets(&kubectl, &options, LOGIN_SECRET, &key(&lab)?).await?;
    print(context, others, &options)
}

/// Whether the clusters of kubeon with this version mount images: their containerd does, and the API server since 1.35.
fn has_image_volumes(version: &str) -> bool {
    version.parse::<Version>().is_ok_and(|version| (version.major, version.minor) >= (1, 35))
}

/// The image archives, which the meta cluster needs because it has no registry.
fn images(context: &Context<'_>, folder: &Path) -> Result<Vec<String>, CliError> {
    let wanted = ["operator", "runner", "bundle"].map(|name| folder.join(format!("kubeon-{name}.tar")));
    let missing: Vec<&PathBuf> = wanted.iter().filter(|file| !file.is_file()).collect();
    if missing.is_empty() {
        return Ok(wanted.iter().map(|file| file.display().to_string()).collect());
    }
    let error = CliError::refused("the images of the operator are missing");
    let error = missing.into_iter().fold(error, |error, file| error.row("missing", context.shorten(file)));
    let advice = "build them in a checkout with: cargo xtask images, or set their folder with --images";
    Err(error.next(NextStep::Advice(advice.to_owned())))
}

/// Names the images of the operator and of Jobs by the digests in the archives, so that nothing else runs under these names.
fn pin(options: &mut InstallOptions, archives: &[String]) -> Result<(), CliError> {
    for file in archives {
        let archive = LoadableArchive::read(file.into())?.archive;
        for image in &archive.images {
            let (Some(name), ImageContent::Manifest(digest)) = (&image.name, &image.content) else {
                continue;
            };
            let ours = std::iter::once(&mut options.image).chain(&mut options.runner_images);
            for own in ours.filter(|own| full_name(own) == *name) {
                own.push_str(&format!("@sha256:{digest}"));
            }
        }
    }
    Ok(())
}

/// Runs another command of this program.
async fn run_command(context: &Context<'_>, words: &[&str]) -> Result<(), CliError> {
    context.output.info(&format!("kubeon {}", words.join(" ")));
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
    Lab::open(&places, &name)
        .map_err(|error| CliError::failed(chain(&error)).next(error.remedy().as_ref().map(remedies::lab)))
}

/// The private key that the hosts of the lab accept.
fn key(lab: &Lab) -> Result<String, CliError> {
    let file = lab.key_path();
    std::fs::read_to_string(&file)
        .map_err(|error| CliError::failed(format!("cannot read {}: {error}", file.display())))
}

fn print(context: &Context<'_>, others: &[LabHost], options: &InstallOptions) -> Result<(), CliError> {
    let mut text = format!("the Secret {LOGIN_SECRET} contains the login of the free hosts:\n");
    for host in others {
        text.push_str(&format!("  {:4}  {}\n", host.name, host.address));
    }
    context.output.result(&text)?;
    context.output.info(&format!(
        "logs: kubectl -n {} logs -f deployment/{}",
        options.namespace,
        names::OPERATOR
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_mounted_since_1_35() {
        assert_eq!(
            ["v1.34.9", "v1.35.0", "v2.0.0", "newest"].map(has_image_volumes),
            [false, true, true, false]
        );
    }
}
