use std::os::unix::fs::symlink;
use std::time::SystemTime;

use super::*;

fn names(blob: &Path) -> Vec<(String, u32, u64)> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(blob).unwrap()).unwrap());
    let entry = |entry: io::Result<tar::Entry<'_, _>>| {
        let entry: tar::Entry<'_, zstd::Decoder<'_, _>> = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        (entry.path().unwrap().display().to_string(), header.mode().unwrap(), header.mtime().unwrap())
    };
    archive.entries().unwrap().map(entry).collect()
}

fn sample(root: &Path, mode: u32) {
    let long = root.join("b".repeat(120)).join("c".repeat(60));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("file"), "long").unwrap();
    fs::write(root.join("run"), "#!/bin/sh").unwrap();
    fs::set_permissions(root.join("run"), fs::Permissions::from_mode(mode)).unwrap();
    symlink("run", root.join("a-link")).unwrap();
}

#[test]
fn gives_the_same_bytes_for_all_times_and_modes() {
    let (first_root, second_root, out) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sample(first_root.path(), 0o755);
    sample(second_root.path(), 0o4711);
    File::open(second_root.path().join("run")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let first = pack(&tree(first_root.path()).unwrap(), out.path()).unwrap();
    let second = pack(&tree(second_root.path()).unwrap(), out.path()).unwrap();
    assert_eq!((&first.digest, first.size), (&second.digest, second.size));
    let blob = out.path().join(first.digest.as_str());
    assert_eq!(crate::digest::of_file(&blob).unwrap(), (first.digest, first.size));
    let decoder = zstd::Decoder::new(File::open(&blob).unwrap()).unwrap();
    assert_eq!(crate::digest::of_reader(decoder).unwrap(), (first.diff_id, first.tar_size));
    assert_eq!(first.unpacked_size, 13);
    let (b, c) = ("b".repeat(120), "c".repeat(60));
    let wanted = [
        ("a-link".into(), 0o777, 0),
        (format!("{b}/"), 0o755, 0),
        (format!("{b}/{c}/"), 0o755, 0),
        (format!("{b}/{c}/file"), 0o644, 0),
        ("run".into(), 0o755, 0),
    ];
    assert_eq!(names(&blob), wanted);
}

#[test]
fn refuses_a_stream_of_another_length() {
    for (size, text) in [(3, "four"), (5, "four")] {
        let mut tar = tar::Builder::new(Vec::new());
        let error = append_stream(&mut tar, "file", 0o644, size, text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("not"), "{error}");
    }
}

#[test]
fn refuses_a_socket() {
    let root = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
    assert!(tree(root.path()).unwrap_err().to_string().contains("socket"));
}

#[test]
fn adds_the_parent_folders() {
    let mut tree = TarTree::from([("a/b/c".to_owned(), TarContent::Link("x".into()))]);
    add_parents(&mut tree);
    assert_eq!(tree.keys().collect::<Vec<_>>(), ["a", "a/b", "a/b/c"]);
}
