//! A small command line for finished bundles, for developers: `look ls`, `look verify VERSION`, `look archive VERSION IMAGE FILE`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use kubeon_bundle::BundleStore;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let start = Instant::now();
    match words.as_slice() {
        ["ls"] => {
            for (folder, bundle) in BundleStore::from_env()?.list()? {
                let text =
                    bundle.map_or_else(|error| error.to_string(), |b| format!("{} MiB", b.size() >> 20));
                println!("{}  {text}", folder.display());
            }
        }
        ["verify", version] => {
            if let Err(error) = BundleStore::find_native(version.parse()?)?.verify() {
                eprintln!("error: {error}");
                std::process::exit(1);
            }
        }
        ["archive", version, image, file] => {
            let archive =
                BundleStore::find_native(version.parse()?)?.image_archive(image, Path::new(file))?;
            println!("{} sha256:{} {} bytes", archive.path.display(), archive.digest, archive.size);
        }
        _ => return Err("usage: look ls | verify VERSION | archive VERSION IMAGE FILE".into()),
    }
    eprintln!("{:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}
