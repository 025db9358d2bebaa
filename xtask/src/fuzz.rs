//! `cargo xtask fuzz`: searches for inputs that break a rule of a parser, by libFuzzer.
//!
//! ```text
//!   kept inputs (crates/fuzz-targets/corpus) ─► libFuzzer ─┬─► target/fuzz/inputs: what reached new code
//!                                                          └─► target/fuzz/broken: what broke a rule
//!   --keep: the smallest set of inputs that reaches the same code ─► kept inputs
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// How the compiler counts executed code. These flags are those of cargo-fuzz, without the sanitizers, which need an unstable
/// compiler. The program is not static: libFuzzer looks up functions while it runs.
const FLAGS: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];

/// A longer input finds nothing that a shorter one does not find.
const LONGEST_INPUT: usize = 16 << 10;
/// An input for which a parser needs longer is reported.
const SLOWEST_SECONDS: u32 = 20;

/// What to search, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Seconds for each target
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    seconds: u32,
    /// Only this target; may be repeated
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<String>,
    /// Keep the inputs that reach new code
    #[arg(long)]
    keep: bool,
}

/// The folders of a search.
struct Place {
    corpus: PathBuf,
    work: PathBuf,
    program: PathBuf,
}

/// Searches, one target after another.
pub(crate) fn run(root: &Path, fuzz: &Fuzz) -> Result<()> {
    let root = root.canonicalize()?;
    let (corpus, work) = (root.join("crates/fuzz-targets/corpus"), root.join("target/fuzz"));
    let all = names(&corpus)?;
    if let Some(unknown) = fuzz.targets.iter().find(|name| !all.contains(name)) {
        bail!("{unknown} is no target; they are {}", all.join(", "));
    }
    let program = build(&root, &work)?;
    let place = Place { corpus, work, program };
    let wanted = all.iter().filter(|name| fuzz.targets.is_empty() || fuzz.targets.contains(name));
    let mut broken = Vec::new();
    for name in wanted {
        if !search(&place, name, fuzz.seconds)? {
            broken.push(name.as_str());
        }
        if fuzz.keep {
            keep(&place, name)?;
        }
    }
    ensure!(
        broken.is_empty(),
        "a rule is broken in {}: the inputs are in {}",
        broken.join(", "),
        place.work.join("broken").display()
    );
    Ok(())
}

fn names(corpus: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(corpus).with_context(|| format!("cannot read {}", corpus.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn build(root: &Path, work: &Path) -> Result<PathBuf> {
    let status = Command::new("cargo")
        .current_dir(root.join("fuzz"))
        .args(["build", "--release", "--locked", "--target", TARGET, "--target-dir"])
        .arg(work)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"))
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    ensure!(status.success(), "the fuzzer is not compiled: {status}");
    Ok(work.join(TARGET).join("release/kubeon-fuzz"))
}

fn command(place: &Place, name: &str) -> Command {
    let mut command = Command::new(&place.program);
    command.env("KUBEON_FUZZ_TARGET", name).arg(format!("-max_len={LONGEST_INPUT}"));
    command
}

/// Searches in one target. Returns whether no rule was broken.
fn search(place: &Place, name: &str, seconds: u32) -> Result<bool> {
    let found = place.work.join("inputs").join(name);
    let broken = place.work.join("broken").join(name);
    fs::create_dir_all(&found)?;
    fs::create_dir_all(&broken)?;
    let status = command(place, name)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={SLOWEST_SECONDS}"))
        .arg(format!("-artifact_prefix={}/", broken.display()))
        .args(["-print_final_stats=1", "-verbosity=1", "-rss_limit_mb=4096"])
        .arg(&found)
        .arg(place.corpus.join(name))
        .status()?;
    Ok(status.success())
}

/// Adds the inputs that reach code which the kept ones do not reach.
fn keep(place: &Place, name: &str) -> Result<()> {
    let status = command(place, name)
        .arg("-merge=1")
        .arg(place.corpus.join(name))
        .arg(place.work.join("inputs").join(name))
        .status()?;
    ensure!(status.success(), "the inputs of {name} are not kept: {status}");
    Ok(())
}
