//! Kernel modules, kernel parameters and swap: applies them now and for every boot.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use kubeon_process::ProgramError;
use kubeon_wire::{Category, StepFailure};

use super::swap;
use crate::command::{run as run_program, step_failure};
use crate::durable::{read_text, sha256, write_if_different};
use crate::failure::{failed, of, plain};
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::paths;
use crate::root::Root;

const HEAD: &str = "# Written by kubeon; changes are overwritten.\n";

/// Loads modules, sets parameters, turns swap off.
///
/// # Errors
/// If a parameter that is not optional cannot be set, or a file cannot be written.
pub fn run(
    job: &Job<'_>,
    modules: &[String],
    parameters: &BTreeMap<String, String>,
    optional: &[String],
) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let mut effect = StepEffect::default();
    for module in modules {
        effect.changed |= load(job, module);
    }
    let mut lines = String::from(HEAD);
    for (name, value) in parameters {
        match set(root, name, value) {
            Ok(changed) => {
                effect.changed |= changed;
                effect.marks.push(Mark::Parameter { name: name.clone(), value: value.clone() });
                lines.push_str(&format!("{name} = {value}\n"));
            }
            Err(why) if optional.contains(name) => {
                job.note(format!("the kernel parameter {name} is not changed: {why}"))
            }
            Err(why) => {
                let cause = format!("the kernel parameter {name} cannot be set to {value}: {why}");
                return Err(of(Category::Unsupported, cause));
            }
        }
    }
    let modules = format!("{HEAD}{}\n", modules.join("\n"));
    let _guard = job.host.shared_files.lock();
    for (path, text) in [(paths::MODULES_LOAD, &modules), (paths::SYSCTL, &lines)] {
        effect.changed |= write_if_different(&root.at(path), text.as_bytes(), 0o644)?;
        effect.marks.push(Mark::File { path: path.to_owned(), sha256: sha256(text.as_bytes()), mode: 0o644 });
    }
    let StepEffect { changed, marks } = swap::off(job)?;
    effect.changed |= changed;
    effect.marks.extend(marks);
    Ok(effect)
}

/// Loads a module. Returns whether this call loaded it. A module that cannot be loaded is assumed to be built
/// in: if it is missing, a parameter or a service that needs it fails.
fn load(job: &Job<'_>, module: &str) -> bool {
    let known = job.host.root.at("/sys/module").join(module.replace('-', "_"));
    if known.exists() || !job.host.root.is_live() {
        return false;
    }
    let why = match run_program("modprobe", &["--", module], None, job.deadline) {
        Ok(done) if done.success() => return known.exists(),
        Ok(done) => done.last_line(),
        Err(ProgramError::Missing { .. }) => "the host has no program modprobe".to_owned(),
        Err(other) => step_failure(other).cause,
    };
    job.note(format!("module {module} is not loaded; assumed to be built into the kernel: {why}"));
    false
}

/// Sets a parameter. Returns whether it had another value.
fn set(root: &Root, name: &str, value: &str) -> Result<bool, String> {
    let place = place(root, name).map_err(|failure| failure.cause)?;
    let old = match read_text(&place) {
        Ok(Some(old)) => old,
        Ok(None) => return Err("this kernel does not have the parameter".to_owned()),
        Err(failure) => return Err(failure.cause),
    };
    if same(&old, value) {
        return Ok(false);
    }
    fs::write(&place, value).map_err(|error| plain(&error))?;
    match value_of(root, name) {
        Some(now) if same(&now, value) => Ok(true),
        now => Err(format!("the kernel keeps {}", now.unwrap_or_default())),
    }
}

/// The current value of a parameter; `None` if it cannot be read.
#[must_use]
pub fn value_of(root: &Root, name: &str) -> Option<String> {
    let text = fs::read_to_string(place(root, name).ok()?).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether two values are the same to the kernel, which separates words by tabs.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

fn place(root: &Root, name: &str) -> Result<PathBuf, StepFailure> {
    // `net/ipv4/conf/eth0.1/x` is written with slashes, so that a name may contain a dot.
    let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    root.given(&format!("/proc/sys/{path}")).map_err(|_| failed(format!("{name} is not a kernel parameter")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn sets_parameters_now_and_for_the_next_boot() {
        let bench = Bench::new();
        bench.write("/proc/sys/net/ipv4/ip_forward", "0\n");
        bench.write("/proc/sys/net/ipv4/tcp_mem", "1\t2\t3\n");
        let wanted = parameters(&[("net.ipv4.ip_forward", "1"), ("net.ipv4.tcp_mem", "1 2 3")]);
        let effect = run(&bench.job(), &["br_netfilter".into()], &wanted, &[]).unwrap();
        assert!(effect.changed);
        assert_eq!(bench.read("/proc/sys/net/ipv4/ip_forward"), "1");
        assert!(bench.read(paths::SYSCTL).contains("net.ipv4.ip_forward = 1\n"));
        assert!(bench.read(paths::MODULES_LOAD).contains("br_netfilter\n"));
        let again = run(&bench.job(), &["br_netfilter".into()], &wanted, &[]).unwrap();
        assert!(!again.changed);
        assert_eq!(again.marks, effect.marks);
    }

    #[test]
    fn notes_an_optional_parameter_and_fails_on_another() {
        let bench = Bench::new();
        let wanted = parameters(&[("net.netfilter.nf_conntrack_max", "1000")]);
        let name = "net.netfilter.nf_conntrack_max".to_owned();
        let effect = run(&bench.job(), &[], &wanted, std::slice::from_ref(&name)).unwrap();
        assert_eq!(effect.marks.len(), 3, "only the two files, and no swap: {:?}", effect.marks);
        assert!(bench.output().contains("this kernel does not have the parameter"), "{}", bench.output());
        assert!(!bench.read(paths::SYSCTL).contains(&name), "a refused parameter is not set at boot");
        assert_eq!(run(&bench.job(), &[], &wanted, &[]).unwrap_err().category, Category::Unsupported);
    }

    #[test]
    fn a_parameter_cannot_name_another_file() {
        let bench = Bench::new();
        assert!(set(&bench.host.root, "../../etc/passwd", "x").is_err());
    }
}
