//! `kubeon use`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use kubeon_api::{ClusterName, Version};
use kubeon_atomic_file::AtomicFile;
use kubeon_bundle::{Arch, Bundle, PartKind};
use serde::Serialize;

use crate::args::day::UseArgs;
use crate::args::{Format, FormatFlag};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};
use kubeon_engine::bundles;
use kubeon_engine::endpoint::{self, ContextChoice};
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::kubeconfig::Kubeconfig;

/// What was chosen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Chosen {
    cluster: ClusterName,
    /// What `~/.kube/config` points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
    /// The context that kubectl uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// The bundle's kubectl.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubectl: Option<PathBuf>,
}

/// Chooses a cluster, for kubeon and for kubectl.
pub(super) async fn run(context: &Context<'_>, args: &UseArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let Some(given) = &args.name else {
        let cluster = engine.name(None)?;
        let text = format!("{cluster}\n");
        let chosen = Chosen { cluster, kubeconfig: None, context: None, kubectl: None };
        return tell(context, &args.format, &chosen, &text);
    };
    let name = engine.name(Some(given))?;
    let state = engine.load(&name)?;
    let kubeconfig = engine.store.kubeconfig_path(&name);
    if !kubeconfig.is_file() {
        let stop = CliError::refused(format!("{name} has no kubeconfig yet: it was not finished"));
        return Err(stop.hint(format!("continue with: kubeon create {name}")));
    }
    engine.store.set_current(&name)?;
    let link = link_kubeconfig(context, &kubeconfig)?;
    let current = match lead(&engine, &state, &kubeconfig).await {
        Ok(current) => current,
        Err(stop) => {
            context.output.warn(&format!("kubectl goes the way that it went before: {}", stop.title));
            None
        }
    };
    let program = match kubectl(&engine, state.version.unwrap_or(state.spec.version)) {
        Ok(program) => Some(program),
        Err(stop) => {
            context.output.warn(&format!("kubectl is not linked: {}", stop.title));
            None
        }
    };
    let text = format!("{name} is chosen; {} points to it\n", context.shorten(&link));
    let chosen = Chosen { cluster: name, kubeconfig: Some(kubeconfig), context: current, kubectl: program };
    tell(context, &args.format, &chosen, &text)?;
    if let Some(program) = &chosen.kubectl {
        hint(context, program);
    }
    Ok(())
}

fn tell(context: &Context<'_>, format: &FormatFlag, chosen: &Chosen, text: &str) -> Result<(), CliError> {
    if matches!(format.output, Format::Table | Format::Wide) {
        return context.output.result(text);
    }
    let answer = CommandResult::new(chosen, TextTable::new(&[]), vec![chosen.cluster.to_string()])?;
    context.output.result(&answer.text(format.output)?)
}

/// Leads kubectl to masters that live, and tells by which context.
async fn lead(
    engine: &Engine<'_>,
    state: &StoredCluster,
    kubeconfig: &Path,
) -> Result<Option<String>, CliError> {
    let text = fs::read_to_string(kubeconfig).map_err(|error| cannot("read", kubeconfig, &error))?;
    let new = endpoint::renewed(&text, &state.spec, ContextChoice::Cluster, engine.output).await?;
    if let Some(new) = &new {
        let lock = engine.lock(state, true, "kubeon use")?;
        engine.store.save_kubeconfig(&lock, new)?;
    }
    Ok(Kubeconfig::parse(&new.unwrap_or(text))?.current().map(str::to_owned))
}

/// `~/.kube/config` becomes a link; a file that was there is kept beside it.
fn link_kubeconfig(context: &Context<'_>, kubeconfig: &Path) -> Result<PathBuf, CliError> {
    let home = context
        .environment
        .home
        .as_ref()
        .ok_or_else(|| CliError::refused("HOME is not set: there is no ~/.kube"))?;
    let link = home.join(".kube/config");
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))?;
    }
    if fs::symlink_metadata(&link).is_ok_and(|meta| !meta.is_symlink()) {
        let kept = free_name(&link)?;
        fs::rename(&link, &kept).map_err(|error| cannot("keep", &link, &error))?;
        context.output.say(&format!(
            "what was in {} is kept in {}",
            context.shorten(&link),
            context.shorten(&kept)
        ));
    }
    point(&link, kubeconfig)?;
    Ok(link)
}

/// How many copies are kept before somebody has to tidy up.
const MOST_COPIES: u32 = 1000;

/// A name beside the file that nobody uses.
fn free_name(file: &Path) -> Result<PathBuf, CliError> {
    let name = |n: u32| if n == 0 { "config.backup".to_owned() } else { format!("config.backup.{n}") };
    (0..MOST_COPIES)
        .map(|n| file.with_file_name(name(n)))
        .find(|path| fs::symlink_metadata(path).is_err())
        .ok_or_else(|| {
            CliError::refused(format!(
                "there are {MOST_COPIES} copies beside {}; remove some",
                file.display()
            ))
        })
}

/// Makes or moves a link in one step.
fn point(link: &Path, target: &Path) -> Result<(), CliError> {
    let mut name = link.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = link.with_file_name(name);
    if fs::symlink_metadata(&new).is_ok() {
        fs::remove_file(&new).map_err(|error| cannot("remove", &new, &error))?;
    }
    symlink(target, &new).map_err(|error| cannot("link", &new, &error))?;
    fs::rename(&new, link).map_err(|error| cannot("replace", link, &error))
}

fn cannot(action: &str, path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot {action} {}: {error}", path.display()))
}

/// Unpacks the bundle's kubectl once and links it in `bin` of the state folder.
fn kubectl(engine: &Engine<'_>, version: Version) -> Result<PathBuf, CliError> {
    let store = bundles::store(&engine.environment)?;
    let bundle = store.find(version, Arch::native()).map_err(|error| CliError::refused(error.to_string()))?;
    let folder = engine.store.base().join("bin");
    fs::create_dir_all(&folder).map_err(|error| cannot("make", &folder, &error))?;
    let program = folder.join(format!("kubectl-{version}"));
    if !program.is_file() {
        unpack(&bundle, &program)?;
    }
    let link = folder.join("kubectl");
    point(&link, &program)?;
    Ok(link)
}

/// The program `kubectl` out of the bundle, whole or not at all.
fn unpack(bundle: &Bundle, place: &Path) -> Result<(), CliError> {
    let carries = |part: &&kubeon_bundle::Part| {
        part.kind != PartKind::Image && part.programs.iter().any(|program| program.ends_with("/kubectl"))
    };
    let part = bundle.manifest().parts.iter().find(carries).ok_or_else(|| {
        CliError::refused(format!("the bundle of {} has no kubectl", bundle.manifest().kubernetes))
    })?;
    let blob = bundle.blob(&part.digest);
    let unpacked = || -> std::io::Result<bool> {
        let file = fs::File::open(&blob)?;
        let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(file)?);
        for entry in archive.entries()? {
            let mut entry = entry?;
            if !entry.path()?.ends_with("kubectl") || !entry.header().entry_type().is_file() {
                continue;
            }
            let folder = place.parent().unwrap_or(Path::new("."));
            let new = AtomicFile::new_in(folder, 0o755)?;
            std::io::copy(&mut entry, &mut new.as_file())?;
            new.commit(place)?;
            return Ok(true);
        }
        Ok(false)
    };
    match unpacked() {
        Ok(true) => Ok(()),
        Ok(false) => Err(CliError::failed(format!("{} holds no kubectl", blob.display()))),
        Err(error) => Err(cannot("unpack", &blob, &error)),
    }
}

/// Says how the program gets into reach, where it is not.
fn hint(context: &Context<'_>, program: &Path) {
    let folder = program.parent().unwrap_or(program);
    if context.environment.path.iter().any(|path| path == folder) {
        return;
    }
    context.output.say(&format!("kubectl:  export PATH={}:$PATH", context.shorten(folder)));
}

/// The chosen cluster, for marks in lists; none when it cannot be told.
pub(super) fn current(engine: &Engine<'_>) -> Option<ClusterName> {
    engine.store.current().ok().flatten()
}
