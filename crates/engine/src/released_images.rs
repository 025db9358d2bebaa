//! The digests of the images of a release, which are attached to its program.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use kubeon_install::IMAGE_DIGESTS;

use crate::error::EngineError;

/// The digests by the names of the images; none for a program that was built without images.
///
/// # Errors
/// When the program cannot be read or is damaged.
pub fn digests(program: &Path) -> Result<BTreeMap<String, String>, EngineError> {
    let failed = |error: io::Error| {
        EngineError::failed(format!("cannot read the digests of images in {}", program.display()))
            .row("cause", error.to_string())
    };
    let attached = kubeon_attachment::list(program).map_err(failed)?;
    let Some(found) = attached.into_iter().find(|one| one.name == IMAGE_DIGESTS) else {
        return Ok(BTreeMap::new());
    };
    let content = found.unpack(program).map_err(failed)?;
    serde_json::from_slice(&content).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_digests_of_a_release_are_read_from_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let (program, file, out) =
            (folder.path().join("plain"), folder.path().join("digests"), folder.path().join("released"));
        fs::write(&program, [7; 100]).unwrap();
        assert_eq!(digests(&program).unwrap(), BTreeMap::new());
        fs::write(&file, r#"{"kubeon/kubeon-operator:v1": "sha256:aa"}"#).unwrap();
        kubeon_attachment::attach(&program, &[(IMAGE_DIGESTS, &file)], &out).unwrap();
        let found = [("kubeon/kubeon-operator:v1".to_owned(), "sha256:aa".to_owned())];
        assert_eq!(digests(&out).unwrap(), found.into());
    }
}
