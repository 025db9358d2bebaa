//! Kernel modules, kernel parameters and swap: applies them now and for every boot.

use std::collections::BTreeMap;

use kubeon_process::ProgramError;
use kubeon_wire::{Category, StepFailure};

use super::swap;
use crate::command::{run as run_program, step_failure};
use crate::durable::{read_text, sha256, write_if_different};
use crate::failure::of;
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::kernel_parameter::set;
use crate::original;
use crate::paths;

const HEAD: &str = "# Written by kubeon; changes are overwritten.\n";

/// Loads modules, sets parameters, turns swap off. Parameters that an earlier run set and this one does not get the values from
/// before the cluster.
///
/// # Errors
/// If a parameter that is not optional cannot be set, or a file cannot be read or written.
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
    // After the modules, because some of them bring parameters.
    original::remember(job, parameters)?;
    let before = read_text(&root.at(paths::SYSCTL))?.unwrap_or_default();
    let dropped = names(&before).filter(|name| !parameters.contains_key(*name));
    effect.changed |= original::restore_dropped(job, &dropped.collect::<Vec<_>>())?;
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

/// The parameters in the file for every boot.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.split_once('=')?.0.trim()))
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
    fn a_parameter_that_is_not_wanted_any_more_gets_its_old_value() {
        let bench = Bench::new();
        bench.write("/proc/sys/net/ipv4/ip_forward", "1\n");
        bench.write("/proc/sys/vm/max_map_count", "65530\n");
        let set = |pairs: &[(&str, &str)]| run(&bench.job(), &[], &parameters(pairs), &[]).unwrap();
        let forward = ("net.ipv4.ip_forward", "1");
        set(&[forward, ("vm.max_map_count", "262144")]);
        set(&[forward, ("vm.max_map_count", "524288")]);
        assert_eq!(bench.read("/proc/sys/vm/max_map_count"), "524288");
        assert!(set(&[forward]).changed);
        assert_eq!(bench.read("/proc/sys/vm/max_map_count"), "65530");
        assert!(!bench.read(paths::SYSCTL).contains("max_map_count"));
        assert!(!set(&[forward]).changed);
        set(&[forward, ("vm.max_map_count", "262144")]);
        original::restore_parameters(&bench.job()).unwrap();
        assert_eq!(bench.read("/proc/sys/vm/max_map_count"), "65530", "a reset restores it too");
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
}
