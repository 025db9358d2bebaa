//! Embeds the files of `catalogue/` into the crate, so that the program contains the catalogue.
#![allow(clippy::print_stdout)] // a build script sends instructions to cargo on stdout

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("../../catalogue");
    let root = root.canonicalize()?;
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut code = String::from(
        "/// Every file of `catalogue/`: path inside it, content.\nstatic FILES: &[(&str, &str)] = &[\n",
    );
    for file in &files {
        let name = file.strip_prefix(&root).map_err(io::Error::other)?;
        writeln!(
            code,
            "    ({:?}, include_str!({:?})),",
            name.display().to_string(),
            file.display().to_string()
        )
        .map_err(io::Error::other)?;
        println!("cargo::rerun-if-changed={}", file.display());
    }
    code.push_str("];\n");
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("catalogue_files.rs"), code)
}

/// Cargo watches folders too, so that it notices the file of a new version.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|e| ["yaml", "mod", "sum", "go"].iter().any(|known| e == *known))
        {
            files.push(path);
        }
    }
    Ok(())
}
