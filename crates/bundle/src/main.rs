//! Makes a bundle without the rest of kubeon: what `./try` compiles first, so that Kubernetes is built while kubeon is.
//! Says what it does in plain lines on standard error, and the bundle's folder on standard output.
//! usage: kubeon-bundle VERSION [go-modules|DIR] [--refresh]

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use kubeon_bundle::{Arch, BuildOptions, Catalogue, Progress, State, Store, build};
use parking_lot::Mutex;

/// A component speaks again when another tenth of it is done.
const TENTHS: usize = 10;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let refresh = arguments.iter().any(|argument| argument == "--refresh");
    arguments.retain(|argument| argument != "--refresh");
    let usage = "usage: kubeon-bundle VERSION [go-modules|DIR] [--refresh]";
    let version = arguments.first().ok_or(usage)?.parse()?;
    let from = arguments.get(1).map_or("go-modules", String::as_str).parse()?;
    let start = Instant::now();
    let catalogue = Catalogue::embedded()?;
    let entry = catalogue.entry(version)?;
    let last = Mutex::new((String::new(), 0));
    let ended = Mutex::new(0);
    let report = |progress: Progress| {
        if progress.state == State::Queued {
            return;
        }
        let (mut last, mut ended) = (last.lock(), ended.lock());
        *ended += usize::from(matches!(progress.state, State::Done | State::Cached));
        let now = (progress.component.clone(), tenth(progress.state));
        if *last != now {
            let counted = format!("{}/{}", *ended, entry.components.len() + 1);
            say(&format!("{:>4} s  {counted:>5}  {}", start.elapsed().as_secs(), line(&progress)));
            *last = now;
        }
    };
    let options = BuildOptions { from, arch: Arch::native(), store: Store::from_env()?, refresh };
    let bundle = build(entry, &options, &report)?;
    writeln!(std::io::stdout(), "{}", bundle.root().display())?;
    Ok(())
}

/// What must change before a component is spoken of again.
fn tenth(state: State) -> usize {
    match state {
        State::Building { done, total } => done * TENTHS / total.max(1),
        State::Queued | State::Waiting => TENTHS + 1,
        State::Fetching => TENTHS + 2,
        State::Linking => TENTHS + 3,
        State::Packing => TENTHS + 4,
        State::Cached | State::Done | State::Failed => TENTHS + 5,
    }
}

fn line(progress: &Progress) -> String {
    let left = progress.seconds_left().map_or(String::new(), |left| format!(", about {left} s left"));
    let doing = match progress.state {
        State::Queued | State::Waiting => "waits for another build of it".to_owned(),
        State::Fetching => format!("fetching{left}"),
        State::Building { done, total } => format!("building {done}/{total} packages{left}"),
        State::Linking => format!("linking{left}"),
        State::Packing => "packing".to_owned(),
        State::Cached => "found in the cache".to_owned(),
        State::Done => format!("made in {} s", progress.elapsed.as_secs()),
        State::Failed => "failed".to_owned(),
    };
    format!("{:12} {doing}", progress.component)
}

/// Where nobody reads any more there is nothing left to say.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
