//! Writes the image of `lab-client`: `lab-client-image PROGRAM ARCHIVE`.

use std::path::Path;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, archive] = arguments.as_slice() else { bail!("usage: lab-client-image PROGRAM ARCHIVE") };
    kubeon_e2e::image::write(Path::new(program), Path::new(archive))
}
