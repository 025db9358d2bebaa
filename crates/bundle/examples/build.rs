//! A developer's door: makes a bundle and tells what happens. `cargo run --release -p kubeon-bundle --example build --
//! v1.36.3 [go-modules|DIR] [--refresh]`
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::sync::Mutex;
use std::time::Instant;

use kubeon_bundle::{Arch, BuildOptions, Catalogue, Progress, State, Store, build};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let refresh = arguments.iter().any(|argument| argument == "--refresh");
    arguments.retain(|argument| argument != "--refresh");
    let version = arguments.first().ok_or("usage: build VERSION [go-modules|DIR] [--refresh]")?.parse()?;
    let from = arguments.get(1).map_or("go-modules", String::as_str).parse()?;
    let start = Instant::now();
    let last = Mutex::new((String::new(), 0));
    let report = |progress: Progress| {
        let Ok(mut last) = last.lock() else { return };
        let tenth = match progress.state {
            State::Building { done, total } => done * 10 / total.max(1),
            _ => usize::MAX,
        };
        if *last != (progress.component.clone(), tenth) || tenth == usize::MAX {
            let left = progress.seconds_left().map_or(String::new(), |left| format!(", about {left} s left"));
            let (total, own) = (start.elapsed().as_secs_f64(), progress.elapsed.as_secs_f64());
            eprintln!("{total:7.1} s  {:12} {:?} after {own:.1} s{left}", progress.component, progress.state);
            *last = (progress.component, tenth);
        }
    };
    let catalogue = Catalogue::embedded()?;
    let options = BuildOptions { from, arch: Arch::native(), store: Store::from_env()?, refresh };
    let bundle = match build(catalogue.entry(version)?, &options, &report) {
        Ok(bundle) => bundle,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    };
    println!("{}", bundle.root().display());
    for part in &bundle.manifest().parts {
        let (size, unpacked) = (part.size as f64 / 1048576.0, part.unpacked_size as f64 / 1048576.0);
        println!("{:24} {:18} {size:7.1} MiB {unpacked:7.1} MiB  {}", part.name, part.version, part.digest);
    }
    for image in &bundle.manifest().images {
        println!("{}", image.reference);
    }
    println!("{:.1} MiB in {:.1} s", bundle.size() as f64 / 1048576.0, start.elapsed().as_secs_f64());
    Ok(())
}
