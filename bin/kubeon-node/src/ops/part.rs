//! Unpacks a part of the bundle to its folder, in one pass over the bytes.

use std::fs;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use kubeon_api::Digest;
use kubeon_wire::{Category, StepFailure};

use super::part_stream::{PartReader, StreamEnd};
use crate::durable::make_folders;
use crate::failure::{Doing, failed, is_full, of, plain};
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::unpack::{UnpackError, unpack};
use crate::{parts, paths};

/// The interval of progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// How much the step yields to the threads that receive and forward parts.
const UNPACKING_NICENESS: i32 = 10;
const MIB: u64 = 1 << 20;

/// A part to unpack.
pub struct PartSpec<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// SHA-256 of its compressed blob.
    pub digest: &'a Digest,
    /// Size of its compressed blob in bytes.
    pub size: u64,
    /// Size after unpacking in bytes.
    pub unpacked_size: u64,
}

/// Unpacks the part if it is missing.
///
/// # Errors
/// [`Category::Corrupt`], [`Category::Exhausted`], [`Category::Unreachable`] if bytes are missing, or
/// [`Category::Timeout`] if another host did not forward them. The part is then not installed.
pub fn run(job: &Job<'_>, part: &PartSpec<'_>, arriving: PartReader) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let marks = vec![Mark::Part { digest: part.digest.to_string() }];
    if parts::is_whole(root, part.digest)? {
        return Ok(StepEffect { changed: false, marks });
    }
    make_folders(&root.at(paths::PARTS))?;
    check_space(job, part)?;
    let temporary = parts::unfinished(root, part.digest, job.id);
    parts::remove(&temporary)?;
    fs::create_dir(&temporary).doing("create the folder", &temporary)?;
    let done = receive(job, part, arriving, &temporary)
        .and_then(|()| finish(job, part, &temporary))
        .inspect_err(|_| drop(parts::remove(&temporary)));
    done.map(|()| StepEffect { changed: true, marks })
}

fn finish(job: &Job<'_>, part: &PartSpec<'_>, temporary: &Path) -> Result<(), StepFailure> {
    // Another step may have installed the same part in the meantime.
    if parts::is_whole(&job.host.root, part.digest)? {
        return parts::remove(temporary);
    }
    parts::put(&job.host.root, part.digest, temporary)
}

fn receive(
    job: &Job<'_>,
    part: &PartSpec<'_>,
    arriving: PartReader,
    folder: &Path,
) -> Result<(), StepFailure> {
    if arriving.is_kept() {
        // Other hosts wait for the bytes, and nobody for what is unpacked before the next part has arrived. The priority is
        // that of this thread, which ends with the step. Without the right to change it, the step works too.
        let _ = rustix::process::nice(UNPACKING_NICENESS);
    }
    arriving.wait_for_turn();
    let broken = |error: &io::Error| failed(format!("cannot unpack {}: {}", part.name, plain(error)));
    let reader = ProgressReader { job, arriving, total: part.size, last: Instant::now() };
    let mut decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(|error| broken(&error))?;
    let mut outcome = unpack(&mut decoder, folder);
    if outcome.is_ok() {
        // Bytes after the end of the archive belong to the blob, and only they show that a frame is damaged.
        outcome = io::copy(&mut decoder, &mut io::sink()).map(drop).map_err(UnpackError::Stream);
    }
    if let Err(UnpackError::Write(path, error)) = outcome {
        let full = is_full(&error).then(|| no_space(job, part, free(job).unwrap_or(0)));
        return full.map_or_else(|| Err(error).doing("write", &path), Err);
    }
    match (decoder.into_inner().arriving.finish(), outcome) {
        (StreamEnd::Cut(received), _) => Err(of(
            Category::Unreachable,
            format!("the connection ended after {} of {} bytes of {}", received, part.size, part.name),
        )),
        (StreamEnd::NotForwarded(why), _) => Err(of(Category::Timeout, format!("{}: {why}", part.name))),
        (StreamEnd::Whole(sum), _) if sum != part.digest.as_str() => Err(of(
            Category::Corrupt,
            format!("{} arrived damaged: its SHA-256 is {sum}, not {}", part.name, part.digest),
        )),
        (StreamEnd::Whole(_), Err(UnpackError::Refused(why))) => {
            Err(of(Category::Corrupt, format!("{} cannot be unpacked: {why}", part.name)))
        }
        (StreamEnd::Whole(_), Err(UnpackError::Stream(error))) => {
            Err(of(Category::Corrupt, format!("{} cannot be unpacked: {}", part.name, plain(&error))))
        }
        (StreamEnd::Whole(_), _) => Ok(()),
    }
}

fn check_space(job: &Job<'_>, part: &PartSpec<'_>) -> Result<(), StepFailure> {
    let free = free(job)?;
    if free < part.unpacked_size { Err(no_space(job, part, free)) } else { Ok(()) }
}

fn free(job: &Job<'_>) -> Result<u64, StepFailure> {
    let parts = job.host.root.at(paths::PARTS);
    let disk = rustix::fs::statvfs(&parts).doing("read the free disk space of", &parts)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn no_space(job: &Job<'_>, part: &PartSpec<'_>, free: u64) -> StepFailure {
    let (free, needed) = (free / MIB, part.unpacked_size.div_ceil(MIB));
    let place = job.host.root.at(paths::STATE);
    of(
        Category::Exhausted,
        format!(
            "no space left on {} for {} ({free} MiB free, {needed} MiB needed)",
            place.display(),
            part.name
        ),
    )
}

/// Sends progress events while the part is read.
struct ProgressReader<'a> {
    job: &'a Job<'a>,
    arriving: PartReader,
    total: u64,
    last: Instant,
}

impl BufRead for ProgressReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.last.elapsed() >= PROGRESS_INTERVAL {
            self.last = Instant::now();
            self.job.progress(self.arriving.taken, self.total);
        }
        self.arriving.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.arriving.consume(amount);
    }
}

impl Read for ProgressReader<'_> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        self.arriving.read(place)
    }
}
