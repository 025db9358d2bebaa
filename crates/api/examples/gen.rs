//! Writes the custom resource definitions into the given folder: `cargo run -p kubeon-api --example gen -- deploy/crds`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder =
        PathBuf::from(std::env::args_os().nth(1).ok_or("the argument FOLDER is missing: gen FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    for (name, yaml) in kubeon_api::crds()? {
        std::fs::write(folder.join(name), yaml)?;
    }
    Ok(())
}
