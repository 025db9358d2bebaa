//! Builds a bundle without the rest of kubeon. `./try` compiles this program first, so that Kubernetes is built while
//! kubeon is compiled. Prints progress as plain lines on standard error and the bundle's folder on standard output.
//! usage: kubeon-bundle VERSION [go-modules|official|https://MIRROR|DIR] [--refresh] [--compile-cache=DIR]

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use kubeon_bundle::{
    Arch, BuildError, BuildOptions, BuildProgress, BuildState, BundleRemedy, BundleStore, Catalogue, build,
};
use parking_lot::Mutex;

mod progress_line;

/// The argument with the folder of what the compiler made, which is kept.
const COMPILE_CACHE: &str = "--compile-cache=";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_line(&format!("error: {error}"));
            let remedy = error.downcast_ref().and_then(BuildError::remedy);
            if let Some(advice) = remedy.and_then(advice) {
                print_line(&advice);
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let refresh = arguments.iter().any(|argument| argument == "--refresh");
    let compile_cache =
        arguments.iter().find_map(|argument| argument.strip_prefix(COMPILE_CACHE)).map(Into::into);
    arguments.retain(|argument| argument != "--refresh" && !argument.starts_with(COMPILE_CACHE));
    let usage = "usage: kubeon-bundle VERSION [go-modules|official|https://MIRROR|DIR] [--refresh] [--compile-cache=DIR]";
    let version = arguments.first().ok_or(usage)?.parse()?;
    let from = arguments.get(1).map_or("go-modules", String::as_str).parse()?;
    let start = Instant::now();
    let catalogue = Catalogue::embedded()?;
    let entry = catalogue.entry(version)?;
    let last = Mutex::new((String::new(), 0));
    let ended = Mutex::new(0);
    let report = |progress: BuildProgress| {
        if progress.state == BuildState::Queued {
            return;
        }
        let (mut last, mut ended) = (last.lock(), ended.lock());
        *ended += usize::from(matches!(progress.state, BuildState::Done | BuildState::Cached));
        let now = (progress.component.clone(), progress_line::step(progress.state));
        if *last != now {
            let counted = format!("{}/{}", *ended, entry.components.len() + 1);
            print_line(&format!(
                "{:>4} s  {counted:>5}  {}",
                start.elapsed().as_secs(),
                progress_line::line(&progress)
            ));
            *last = now;
        }
    };
    let store = BundleStore::from_env()?;
    let options = BuildOptions { from, arch: Arch::native(), store, refresh, compile_cache };
    let bundle = build(entry, &options, &report)?;
    writeln!(std::io::stdout(), "{}", bundle.root().display())?;
    Ok(())
}

/// What helps, in terms of this program's arguments.
fn advice(remedy: BundleRemedy) -> Option<String> {
    let text = match remedy {
        BundleRemedy::ChooseSource | BundleRemedy::UseAnotherSource => {
            "use official, https://MIRROR, go-modules, or a folder with the parts as files"
        }
        BundleRemedy::ProvideParts => "provide the parts as files in a folder: kubeon-bundle VERSION DIR",
        BundleRemedy::InstallPackage(package) => {
            return Some(format!("install it with: apt-get install {package}"));
        }
        BundleRemedy::InstallNewerGo => "the installed Go is too old: install a newer one",
        BundleRemedy::UseAnotherProxy => "the module proxy does not answer: set GOPROXY to another proxy",
        BundleRemedy::RenewPackageLists => "the package lists are old; renew them with: apt-get update",
        BundleRemedy::MoveCache => "a build needs about 5 GiB: set KUBEON_CACHE to a folder on a larger disk",
        BundleRemedy::Build(_) | BundleRemedy::BuildAgain(_) | BundleRemedy::ReportBug => return None,
    };
    Some(text.to_owned())
}

/// Prints a line. An error is ignored: the reader of standard error may have closed it.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
