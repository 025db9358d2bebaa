//! Archives, which name files: none may be written outside of their folder.

use std::fs;
use std::path::Path;

use kubeon_store::Store;

/// No entry of a part is outside of the folder into which it is unpacked, whether it is accepted or not. Links may be absolute:
/// they are for programs that use the folder as their root.
pub(crate) fn part(bytes: &[u8]) {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("part");
    fs::create_dir(&folder).unwrap();
    drop(kubeon_node::unpack::unpack(bytes, &folder));
    assert_eq!(names(around.path()), ["part"], "an entry is outside of its folder");
}

/// An archive of a state is taken over as a whole or not at all, and writes only into the store.
pub(crate) fn state_archive(bytes: &[u8]) {
    let around = tempfile::tempdir().unwrap();
    let store = Store::new(around.path().join("home"));
    let name = "demo".parse().unwrap();
    let lock = store.lock(&name, "import").unwrap();
    // A fuzzer does not find its way through the compression.
    let compressed = zstd::encode_all(bytes, 1).unwrap();
    if store.import(&lock, compressed.as_slice()).is_err() {
        assert!(!store.exists(&name), "a refused archive left a state");
    }
    assert_eq!(names(around.path()), ["home"], "a file is outside of the store");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
