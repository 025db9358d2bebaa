//! Swap off, now and at every boot; and back as it was declared.

use std::fs;

use kubeon_wire::StepFailure;

use crate::command::run;
use crate::durable::{read_text, remove_file, write_file};
use crate::failure::Doing;
use crate::job::Job;
use crate::paths;
use crate::root::Root;

/// Set before lines of the file systems table that declare swap.
const MARK: &str = "# kubeon: ";

/// Turns swap off and takes it out of the file systems table, of which a copy is kept. Tells whether
/// anything changed. Where the host does not allow it, a note says so: the kubelet has the last word.
///
/// # Errors
/// When the table cannot be written.
pub fn off(job: &Job<'_>) -> Result<bool, StepFailure> {
    let root = &job.host.root;
    let mut changed = undeclare(root)?;
    if root.is_live() && in_use(root)? {
        match run("swapoff", &["--all"], None, job.deadline) {
            Ok(done) if done.success => changed = true,
            Ok(done) => job.note(format!("swap stays on: {}", done.complaint())),
            Err(error) => job.note(format!("swap stays on: {}", StepFailure::from(error))),
        }
    }
    Ok(changed)
}

/// Declares swap again as it was; it is used from the next boot on.
///
/// # Errors
/// When the table cannot be written.
pub fn redeclare(root: &Root) -> Result<bool, StepFailure> {
    let place = root.at(paths::FSTAB);
    let Some(text) = read_text(&place)? else { return Ok(false) };
    let back: String =
        text.split_inclusive('\n').map(|line| line.strip_prefix(MARK).unwrap_or(line)).collect();
    if back != text {
        write_file(&place, back.as_bytes(), 0o644)?;
    }
    Ok(remove_file(&root.at(paths::FSTAB_BACKUP))? || back != text)
}

fn in_use(root: &Root) -> Result<bool, StepFailure> {
    Ok(read_text(&root.at("/proc/swaps"))?.is_some_and(|text| text.lines().count() > 1))
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
        assert!(off(&bench.job()).unwrap());
        assert!(bench.read(paths::FSTAB).ends_with("\n# kubeon: UUID=2 none swap sw 0 0"));
        assert_eq!(bench.read(paths::FSTAB_BACKUP), table);
        assert!(!off(&bench.job()).unwrap());
        assert!(redeclare(&bench.host.root).unwrap());
        assert_eq!(bench.read(paths::FSTAB), table);
        assert!(!bench.host.root.at(paths::FSTAB_BACKUP).exists());
    }
}
