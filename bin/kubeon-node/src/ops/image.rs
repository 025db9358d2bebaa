//! Imports missing images from their archives into containerd.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kubeon_api::Digest;
use kubeon_wire::StepFailure;

use crate::command::{run as run_program, step_failure};
use crate::failure::{failed, plain};
use crate::host::HostSystem;
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::{parts, paths};

/// The label of images that the kubelet never removes.
const PINNED: &str = "io.cri-containerd.pinned=pinned";

/// The interval between two attempts to connect to a starting containerd.
const INTERVAL: Duration = Duration::from_millis(40);

/// Imports the part's `image.tar` unless containerd has an image with this name.
///
/// # Errors
/// If containerd does not answer or refuses the archive, or the archive does not contain the name.
pub fn run(job: &Job<'_>, name: &str, part: &Digest) -> Result<StepEffect, StepFailure> {
    let mark = Mark::Image { name: name.to_owned() };
    await_containerd(job)?;
    if known(job.host, job.deadline, false)?.contains(name) {
        pin(job, name)?;
        return Ok(StepEffect { changed: false, marks: vec![mark] });
    }
    let archive = parts::folder(&job.host.root, part).join("image.tar");
    if !archive.is_file() {
        return Err(failed(format!(
            "the part of {name} is not on the host: {} is missing",
            archive.display()
        )));
    }
    let output = import(job, &archive.to_string_lossy())?;
    if output.split_whitespace().any(|word| word == name) {
        if let Some(names) = &mut *job.host.images.lock() {
            names.insert(name.to_owned());
        }
    } else if !known(job.host, job.deadline, true)?.contains(name) {
        return Err(failed(format!("the archive {} does not contain {name}", archive.display())));
    }
    pin(job, name)?;
    Ok(StepEffect { changed: true, marks: vec![mark] })
}

/// Keeps the kubelet from removing the image when the disk is almost full: there may be no registry to get it from.
fn pin(job: &Job<'_>, name: &str) -> Result<(), StepFailure> {
    ctr(job.host, &["images", "label", name, PINNED], job.deadline).map(drop)
}

/// The names of the images in containerd. They are listed once, and again with `refresh`.
///
/// # Errors
/// If containerd does not answer.
pub fn known(host: &HostSystem, deadline: Instant, refresh: bool) -> Result<BTreeSet<String>, StepFailure> {
    let mut cache = host.images.lock();
    if let (Some(names), false) = (&*cache, refresh) {
        return Ok(names.clone());
    }
    let listed = ctr(host, &["images", "ls", "-q"], deadline)?;
    let names: BTreeSet<_> = listed.lines().map(str::to_owned).collect();
    *cache = Some(names.clone());
    Ok(names)
}

/// Imports with the client (`--local`), which takes a third of the time of the server's transfer. Older
/// versions have only this way and no flag for it. The first container of an image unpacks it, so a host that
/// runs none saves the time.
fn import(job: &Job<'_>, archive: &str) -> Result<String, StepFailure> {
    match ctr(job.host, &["images", "import", "--local", "--no-unpack", archive], job.deadline) {
        Err(failure) if failure.cause.contains("flag provided but not defined") => {
            ctr(job.host, &["images", "import", archive], job.deadline)
        }
        other => other,
    }
}

fn await_containerd(job: &Job<'_>) -> Result<(), StepFailure> {
    let socket = job.host.root.at(paths::CONTAINERD_SOCKET);
    loop {
        match UnixStream::connect(&socket) {
            Ok(_) => return Ok(()),
            Err(error) => {
                job.pause(INTERVAL, || format!("containerd does not answer: {}", plain(&error)))?;
            }
        }
    }
}

fn ctr(host: &HostSystem, arguments: &[&str], deadline: Instant) -> Result<String, StepFailure> {
    let program = host.root.at(paths::CTR);
    let socket = host.root.at(paths::CONTAINERD_SOCKET);
    let (program, socket) = (program.to_string_lossy(), socket.to_string_lossy());
    let mut all = vec!["--address", &*socket, "--namespace", "k8s.io"];
    all.extend(arguments);
    let done = run_program(&program, &all, None, deadline).map_err(step_failure)?;
    if done.success() {
        return Ok(done.stdout);
    }
    let command = arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ");
    Err(failed(format!("ctr {command} failed: {}", done.last_line())))
}
