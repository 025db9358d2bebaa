//! Programs out of published files.

use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// Puts programs of the file into a folder, under their names: the file itself as `program`, or the members of a tar
/// archive whose names are in `names`. Archives may be compressed by gzip.
pub(super) fn programs(file: &Path, program: Option<&str>, names: &[&str], folder: &Path) -> io::Result<()> {
    if let Some(program) = program {
        fs::copy(file, folder.join(program))?;
        return Ok(());
    }
    let mut opened = File::open(file)?;
    let mut magic = [0; 2];
    let is_gzip = opened.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    opened.seek(SeekFrom::Start(0))?;
    if is_gzip { members(MultiGzDecoder::new(opened), names, folder) } else { members(opened, names, folder) }
}

/// Only regular files are taken, and only their last name counts, so no member can be written elsewhere.
fn members(archive: impl Read, names: &[&str], folder: &Path) -> io::Result<()> {
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|name| entry.header().entry_type().is_file() && names.contains(name))
        {
            io::copy(&mut entry, &mut File::create(folder.join(name))?)?;
        }
    }
    Ok(())
}
