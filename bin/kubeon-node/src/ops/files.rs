//! Writes files: first all temporary files, then renames each to its path.

use kubeon_wire::{Content, File, StepFailure};

use crate::durable::{is_file_with, sha256, stage_file, sync_folders_of};
use crate::failure::{Doing, failed};
use crate::job::{Job, StepEffect};
use crate::journal::Mark;

/// Writes the files that differ.
///
/// # Errors
/// If a file cannot be written. Files before it in the list may already be in place.
pub fn run(job: &Job<'_>, files: &[File]) -> Result<StepEffect, StepFailure> {
    let (mut staged, mut marks) = (Vec::new(), Vec::new());
    for file in files {
        let place = job.host.root.given(&file.path)?;
        let text = text(file)?;
        if !is_file_with(&place, text.as_bytes(), file.mode)? {
            staged.push((stage_file(&place, text.as_bytes(), file.mode)?, place));
        }
        marks.push(Mark::File { path: file.path.clone(), sha256: sha256(text.as_bytes()), mode: file.mode });
    }
    staged.iter().try_for_each(|(file, place)| file.as_file().sync_all().doing("sync", place))?;
    let mut places = Vec::new();
    for (file, place) in staged {
        file.commit_without_sync(&place).doing("replace", &place)?;
        places.push(place);
    }
    sync_folders_of(&places)?;
    Ok(StepEffect { changed: !places.is_empty(), marks })
}

fn text(file: &File) -> Result<&str, StepFailure> {
    let text = match &file.content {
        Content::Text(text) | Content::Sealed(text) => text,
        Content::Secret(_) => {
            return Err(failed(format!("{}: its secret was not resolved before it was sent", file.path)));
        }
    };
    if text.contains("PRIVATE KEY-----") && file.mode & 0o077 != 0 {
        return Err(failed(format!("{}: a private key must not be readable by others", file.path)));
    }
    Ok(text)
}
