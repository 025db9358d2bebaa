//! Turns swap off, now and for every boot, and restores its declaration.
//!
//! ```text
//!   /etc/fstab         ─► its swap lines are commented  ┐
//!   swap units         ─► each gets a false condition   ┼─► swapoff ─► mark: no swap in use
//! ```
//!
//! If another program turns swap on, the mark has drifted and the step is executed again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kubeon_wire::StepFailure;

use crate::command::{run, step_failure};
use crate::durable::{read_text, remove_file, sha256, write_file, write_if_different};
use crate::failure::Doing;
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::paths;
use crate::root::Root;

/// The prefix of disabled swap lines in `/etc/fstab`.
const MARK: &str = "# kubeon: ";

/// The folders of swap units: of the administrator, of the distribution, and of generators such as zram's.
const UNIT_FOLDERS: [&str; 7] = [
    paths::UNIT_FILES,
    "/run/systemd/generator.early",
    "/run/systemd/generator",
    "/run/systemd/generator.late",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The name of the drop-in that prevents a swap unit from starting, in the folder `UNIT.d`.
const DROP_IN: &str = "kubeon.conf";

/// A condition that is always false, because the folder exists on every host. A mask has disadvantages: it is
/// not possible for a unit in this folder, it looks the same as an administrator's mask, and units that
/// require a masked unit fail.
const DROP_IN_TEXT: &str = "# Written by kubeon; changes are overwritten.\n[Unit]\n\
                         ConditionPathExists=!/etc/systemd/system\n";

/// Turns swap off, comments it out in `/etc/fstab` (with a backup), and prevents its units from starting. If
/// the host does not allow it, a note reports it and the kubelet decides whether it starts.
///
/// # Errors
/// If `/etc/fstab` or a drop-in cannot be written.
pub fn off(job: &Job<'_>) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let mut effect = disable_units(job)?;
    effect.changed |= comment_out_table(root)?;
    if root.is_live() && !in_use(root)?.is_empty() {
        match run("swapoff", &["--all"], None, job.deadline) {
            Ok(done) if done.success() => effect.changed = true,
            Ok(done) => job.note(format!("cannot turn swap off: {}", done.last_line())),
            Err(error) => job.note(format!("cannot turn swap off: {}", step_failure(error))),
        }
    }
    effect.marks.push(Mark::NoSwap);
    Ok(effect)
}

/// Restores the declaration of swap, which takes effect at the next boot.
///
/// # Errors
/// If `/etc/fstab` cannot be written, or a drop-in cannot be removed.
pub fn restore(root: &Root) -> Result<bool, StepFailure> {
    // A failure of one does not skip the other.
    let (table, units) = (restore_table(root), enable_units(root));
    Ok(table? | units?)
}

/// The devices and files in use as swap.
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn in_use(root: &Root) -> Result<Vec<String>, StepFailure> {
    let list = read_text(&root.at("/proc/swaps"))?.unwrap_or_default();
    let names = list.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

/// Prevents every swap unit from starting.
fn disable_units(job: &Job<'_>) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let mut effect = StepEffect::default();
    for unit in units(root) {
        let path = format!("{}/{unit}.d/{DROP_IN}", paths::UNIT_FILES);
        effect.changed |= write_if_different(&root.at(&path), DROP_IN_TEXT.as_bytes(), 0o644)?;
        effect.marks.push(Mark::File { path, sha256: sha256(DROP_IN_TEXT.as_bytes()), mode: 0o644 });
    }
    if effect.changed {
        job.host.services.reload()?;
    }
    Ok(effect)
}

/// Removes the drop-ins, also of units that no longer exist.
fn enable_units(root: &Root) -> Result<bool, StepFailure> {
    let mut changed = false;
    for entry in fs::read_dir(root.at(paths::UNIT_FILES)).into_iter().flatten().flatten() {
        let folder = entry.path();
        if folder.to_string_lossy().ends_with(".swap.d") {
            changed |= remove_file(&folder.join(DROP_IN))?;
            // Fails if other files are in it, which must stay.
            drop(fs::remove_dir(&folder));
        }
    }
    Ok(changed)
}

/// The swap units of this host, by name.
fn units(root: &Root) -> BTreeSet<String> {
    let folders = UNIT_FOLDERS.iter().filter_map(|folder| fs::read_dir(root.at(folder)).ok());
    let places = folders.flatten().flatten().map(|entry| entry.path());
    places.filter(|place| is_swap_unit(place)).filter_map(|place| name(&place)).collect()
}

fn name(place: &Path) -> Option<String> {
    place.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// Whether it is a swap unit. An empty file is a masked unit. A unit generated from `/etc/fstab` disappears
/// with its line.
fn is_swap_unit(place: &Path) -> bool {
    let from_fstab = format!("SourcePath={}", paths::FSTAB);
    place.extension().is_some_and(|kind| kind == "swap")
        && fs::read_to_string(place)
            .is_ok_and(|text| !text.trim().is_empty() && text.lines().all(|line| line.trim() != from_fstab))
}

fn restore_table(root: &Root) -> Result<bool, StepFailure> {
    let place = root.at(paths::FSTAB);
    let Some(text) = read_text(&place)? else { return Ok(false) };
    let restored: String =
        text.split_inclusive('\n').map(|line| line.strip_prefix(MARK).unwrap_or(line)).collect();
    if restored != text {
        write_file(&place, restored.as_bytes(), 0o644)?;
    }
    Ok(remove_file(&root.at(paths::FSTAB_BACKUP))? || restored != text)
}

fn comment_out_table(root: &Root) -> Result<bool, StepFailure> {
    let place = root.at(paths::FSTAB);
    let Some(text) = read_text(&place)? else { return Ok(false) };
    let is_swap = |line: &str| !line.starts_with('#') && line.split_whitespace().nth(2) == Some("swap");
    if !text.lines().any(is_swap) {
        return Ok(false);
    }
    let backup = root.at(paths::FSTAB_BACKUP);
    if !backup.exists() {
        fs::copy(&place, &backup).doing("copy", &place)?;
    }
    let commented: String = text
        .split_inclusive('\n')
        .map(|line| if is_swap(line) { format!("{MARK}{line}") } else { line.to_owned() })
        .collect();
    write_file(&place, commented.as_bytes(), 0o644)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn comments_out_and_restores_swap_in_fstab() {
        let bench = Bench::new();
        let table = "UUID=1 / ext4 defaults 0 1\n# UUID=3 none swap sw 0 0\nUUID=2 none swap sw 0 0";
        bench.write(paths::FSTAB, table);
        assert!(off(&bench.job()).unwrap().changed);
        assert!(bench.read(paths::FSTAB).ends_with("\n# kubeon: UUID=2 none swap sw 0 0"));
        assert_eq!(bench.read(paths::FSTAB_BACKUP), table);
        assert!(!off(&bench.job()).unwrap().changed);
        assert!(restore(&bench.host.root).unwrap());
        assert_eq!(bench.read(paths::FSTAB), table);
        assert!(!bench.host.root.at(paths::FSTAB_BACKUP).exists());
    }

    #[test]
    fn disables_and_enables_swap_units() {
        let bench = Bench::new();
        let root = &bench.host.root;
        let unit = |device: &str| format!("[Swap]\nWhat={device}\n");
        bench.write("/run/systemd/generator/dev-zram0.swap", &unit("/dev/zram0"));
        bench.write("/etc/systemd/system/swapfile.swap", &unit("/swapfile"));
        bench.write("/etc/systemd/system/swapfile.swap.d/theirs.conf", "[Swap]\nPriority=5\n");
        bench.write("/usr/lib/systemd/system/dev-vda2.swap", "");
        let from_fstab = format!("[Unit]\nSourcePath=/etc/fstab\n{}", unit("/dev/sda2"));
        bench.write("/run/systemd/generator/dev-sda2.swap", &from_fstab);

        let effect = off(&bench.job()).unwrap();
        assert!(effect.changed);
        assert_eq!(bench.calls(), ["reload"]);
        let (zram, file) = ("dev-zram0.swap.d/kubeon.conf", "swapfile.swap.d/kubeon.conf");
        let at = |name: &str| format!("/etc/systemd/system/{name}");
        for name in [zram, file] {
            assert!(bench.read(&at(name)).contains("\n[Unit]\nConditionPathExists=!/"), "{name}");
        }
        assert_eq!(effect.marks.len(), 3, "two drop-ins, and no swap: {:?}", effect.marks);
        let again = off(&bench.job()).unwrap();
        assert_eq!((again.changed, again.marks), (false, effect.marks));
        assert_eq!(bench.calls(), Vec::<String>::new());

        fs::remove_file(root.at("/run/systemd/generator/dev-zram0.swap")).unwrap();
        assert!(restore(root).unwrap());
        assert!(!root.at(&at("dev-zram0.swap.d")).exists());
        assert!(!root.at(&at(file)).exists());
        assert!(root.at(&at("swapfile.swap.d/theirs.conf")).exists(), "other drop-ins stay");
        assert!(!restore(root).unwrap());
    }
}
