//! Swap off, now and at every boot; and back as it was declared.
//!
//! ```text
//!   file systems table ─► its lines are made comments   ┐
//!   swap units         ─► each gets a condition of ours ┼─► swapoff ─► mark: none is in use
//! ```
//!
//! What anything else turns on is seen by the mark, and the step is done again.

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

/// Set before lines of the file systems table that declare swap.
const MARK: &str = "# kubeon: ";

/// Where units of swap lie: a person's, the distribution's, and those of generators, such as for zram.
const UNIT_FOLDERS: [&str; 7] = [
    paths::UNIT_FILES,
    "/run/systemd/generator.early",
    "/run/systemd/generator",
    "/run/systemd/generator.late",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The name of what keeps a swap unit from being started, in the folder `UNIT.d`.
const HOLD: &str = "kubeon.conf";

/// A condition that is never met: the folder is there wherever this is read. A mask would do the same, but cannot be
/// set on a unit that lies in this folder, cannot be told from a person's own, and fails what requires the unit.
const HOLD_TEXT: &str = "# Written by kubeon; changes are overwritten.\n[Unit]\n\
                         ConditionPathExists=!/etc/systemd/system\n";

/// Turns swap off, takes it out of the file systems table, of which a copy is kept, and keeps its units from being
/// started. Where the host does not allow it, a note says so: the kubelet has the last word.
///
/// # Errors
/// When the table or a condition cannot be written.
pub fn off(job: &Job<'_>) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let mut effect = hold(job)?;
    effect.changed |= undeclare(root)?;
    if root.is_live() && !in_use(root)?.is_empty() {
        match run("swapoff", &["--all"], None, job.deadline) {
            Ok(done) if done.success() => effect.changed = true,
            Ok(done) => job.note(format!("swap stays on: {}", done.last_line())),
            Err(error) => job.note(format!("swap stays on: {}", step_failure(error))),
        }
    }
    effect.marks.push(Mark::NoSwap);
    Ok(effect)
}

/// Declares swap again as it was; it is used from the next boot on.
///
/// # Errors
/// When the table cannot be written, or a condition cannot be removed.
pub fn redeclare(root: &Root) -> Result<bool, StepFailure> {
    // What fails in the one does not keep the other from being done.
    let (table, units) = (restore_table(root), release(root));
    Ok(table? | units?)
}

/// The devices and files that are used as swap.
///
/// # Errors
/// When the kernel's list cannot be read.
pub fn in_use(root: &Root) -> Result<Vec<String>, StepFailure> {
    let list = read_text(&root.at("/proc/swaps"))?.unwrap_or_default();
    let names = list.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

/// Keeps every swap unit from being started.
fn hold(job: &Job<'_>) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let mut effect = StepEffect::default();
    for unit in units(root) {
        let path = format!("{}/{unit}.d/{HOLD}", paths::UNIT_FILES);
        effect.changed |= write_if_different(&root.at(&path), HOLD_TEXT.as_bytes(), 0o644)?;
        effect.marks.push(Mark::File { path, sha256: sha256(HOLD_TEXT.as_bytes()), mode: 0o644 });
    }
    if effect.changed {
        job.host.services.reload()?;
    }
    Ok(effect)
}

/// Takes the conditions away again, also those of units that are gone by now.
fn release(root: &Root) -> Result<bool, StepFailure> {
    let mut changed = false;
    for entry in fs::read_dir(root.at(paths::UNIT_FILES)).into_iter().flatten().flatten() {
        let folder = entry.path();
        if folder.to_string_lossy().ends_with(".swap.d") {
            changed |= remove_file(&folder.join(HOLD))?;
            // Fails where something is left in it, which then is of others.
            drop(fs::remove_dir(&folder));
        }
    }
    Ok(changed)
}

/// The swap units of this host, by name.
fn units(root: &Root) -> BTreeSet<String> {
    let folders = UNIT_FOLDERS.iter().filter_map(|folder| fs::read_dir(root.at(folder)).ok());
    let places = folders.flatten().flatten().map(|entry| entry.path());
    places.filter(|place| declares(place)).filter_map(|place| name(&place)).collect()
}

fn name(place: &Path) -> Option<String> {
    place.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// Whether it is a unit of swap: an empty one is masked, and one made of the file systems table goes with its line.
fn declares(place: &Path) -> bool {
    let of_table = format!("SourcePath={}", paths::FSTAB);
    place.extension().is_some_and(|kind| kind == "swap")
        && fs::read_to_string(place)
            .is_ok_and(|text| !text.trim().is_empty() && text.lines().all(|line| line.trim() != of_table))
}

fn restore_table(root: &Root) -> Result<bool, StepFailure> {
    let place = root.at(paths::FSTAB);
    let Some(text) = read_text(&place)? else { return Ok(false) };
    let back: String =
        text.split_inclusive('\n').map(|line| line.strip_prefix(MARK).unwrap_or(line)).collect();
    if back != text {
        write_file(&place, back.as_bytes(), 0o644)?;
    }
    Ok(remove_file(&root.at(paths::FSTAB_BACKUP))? || back != text)
}

fn undeclare(root: &Root) -> Result<bool, StepFailure> {
    let place = root.at(paths::FSTAB);
    let Some(text) = read_text(&place)? else { return Ok(false) };
    let swap = |line: &str| !line.starts_with('#') && line.split_whitespace().nth(2) == Some("swap");
    if !text.lines().any(swap) {
        return Ok(false);
    }
    let backup = root.at(paths::FSTAB_BACKUP);
    if !backup.exists() {
        fs::copy(&place, &backup).doing("copy", &place)?;
    }
    let without: String = text
        .split_inclusive('\n')
        .map(|line| if swap(line) { format!("{MARK}{line}") } else { line.to_owned() })
        .collect();
    write_file(&place, without.as_bytes(), 0o644)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn takes_swap_out_of_the_table_and_puts_it_back() {
        let bench = Bench::new();
        let table = "UUID=1 / ext4 defaults 0 1\n# UUID=3 none swap sw 0 0\nUUID=2 none swap sw 0 0";
        bench.write(paths::FSTAB, table);
        assert!(off(&bench.job()).unwrap().changed);
        assert!(bench.read(paths::FSTAB).ends_with("\n# kubeon: UUID=2 none swap sw 0 0"));
        assert_eq!(bench.read(paths::FSTAB_BACKUP), table);
        assert!(!off(&bench.job()).unwrap().changed);
        assert!(redeclare(&bench.host.root).unwrap());
        assert_eq!(bench.read(paths::FSTAB), table);
        assert!(!bench.host.root.at(paths::FSTAB_BACKUP).exists());
    }

    #[test]
    fn keeps_swap_units_from_being_started_and_lets_them_go_again() {
        let bench = Bench::new();
        let root = &bench.host.root;
        let unit = |device: &str| format!("[Swap]\nWhat={device}\n");
        bench.write("/run/systemd/generator/dev-zram0.swap", &unit("/dev/zram0"));
        bench.write("/etc/systemd/system/swapfile.swap", &unit("/swapfile"));
        bench.write("/etc/systemd/system/swapfile.swap.d/theirs.conf", "[Swap]\nPriority=5\n");
        bench.write("/usr/lib/systemd/system/dev-vda2.swap", "");
        let of_table = format!("[Unit]\nSourcePath=/etc/fstab\n{}", unit("/dev/sda2"));
        bench.write("/run/systemd/generator/dev-sda2.swap", &of_table);

        let effect = off(&bench.job()).unwrap();
        assert!(effect.changed);
        assert_eq!(bench.asked(), ["reload"]);
        let (zram, file) = ("dev-zram0.swap.d/kubeon.conf", "swapfile.swap.d/kubeon.conf");
        let at = |name: &str| format!("/etc/systemd/system/{name}");
        for name in [zram, file] {
            assert!(bench.read(&at(name)).contains("\n[Unit]\nConditionPathExists=!/"), "{name}");
        }
        assert_eq!(effect.marks.len(), 3, "two conditions, and no swap: {:?}", effect.marks);
        let again = off(&bench.job()).unwrap();
        assert_eq!((again.changed, again.marks), (false, effect.marks));
        assert_eq!(bench.asked(), Vec::<String>::new());

        fs::remove_file(root.at("/run/systemd/generator/dev-zram0.swap")).unwrap();
        assert!(redeclare(root).unwrap());
        assert!(!root.at(&at("dev-zram0.swap.d")).exists());
        assert!(!root.at(&at(file)).exists());
        assert!(root.at(&at("swapfile.swap.d/theirs.conf")).exists(), "what others wrote stays");
        assert!(!redeclare(root).unwrap());
    }
}
