use super::*;
use tar::{Builder, Header};

fn entry(kind: EntryType, path: &str, target: &str, mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    // Bypasses the checks of the tar crate, as a malicious archive would.
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..path.len()].copy_from_slice(path.as_bytes());
    gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(bytes.len() - 1024);
    bytes
}

fn try_unpack(entries: &[Vec<u8>]) -> (tempfile::TempDir, Result<(), UnpackError>) {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("in");
    fs::create_dir(&folder).unwrap();
    let done = unpack(&entries.concat()[..], &folder);
    (outer, done)
}

#[test]
fn keeps_modes_links_and_folders() {
    let (outer, done) = try_unpack(&[
        entry(EntryType::Directory, "./", "", 0o755, b""),
        entry(EntryType::Directory, "closed/", "", 0o555, b""),
        entry(EntryType::Regular, "closed/kubelet", "", 0o750, b"program"),
        entry(EntryType::Regular, "./a/b/c.conf", "", 0o640, b"text"),
        entry(EntryType::Symlink, "a/up", "../closed/kubelet", 0o777, b""),
        entry(EntryType::Symlink, "sh", "/bin/dash", 0o777, b""),
        entry(EntryType::Link, "same", "closed/kubelet", 0o750, b""),
    ]);
    done.unwrap();
    let at = |path: &str| outer.path().join("in").join(path);
    let mode = |path: &str| fs::symlink_metadata(at(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("closed"), mode("closed/kubelet"), mode("a/b/c.conf")), (0o555, 0o750, 0o640));
    assert_eq!(fs::read(at("a/up")).unwrap(), b"program");
    assert_eq!(fs::read(at("same")).unwrap(), b"program");
    assert_eq!(fs::read_link(at("sh")).unwrap(), Path::new("/bin/dash"));
    set_mode(&at("closed"), 0o755).unwrap();
}

#[test]
fn refuses_entries_that_leave_the_folder() {
    let hostile = [
        vec![entry(EntryType::Regular, "../evil", "", 0o644, b"x")],
        vec![entry(EntryType::Regular, "a/../../evil", "", 0o644, b"x")],
        vec![entry(EntryType::Regular, "/tmp/evil", "", 0o644, b"x")],
        vec![entry(EntryType::Symlink, "up", "../../etc", 0o777, b"")],
        vec![entry(EntryType::Link, "up", "../evil", 0o644, b"")],
        vec![
            entry(EntryType::Symlink, "etc", "/etc", 0o777, b""),
            entry(EntryType::Regular, "etc/evil", "", 0o644, b"x"),
        ],
        vec![
            entry(EntryType::Symlink, "etc", "/etc", 0o777, b""),
            entry(EntryType::Directory, "etc/evil/", "", 0o755, b""),
        ],
        vec![
            entry(EntryType::Symlink, "f", "/etc/passwd", 0o777, b""),
            entry(EntryType::Regular, "f", "", 0o644, b"x"),
        ],
        vec![
            entry(EntryType::Symlink, "f", "/etc/passwd", 0o777, b""),
            entry(EntryType::Link, "g", "f", 0o644, b""),
        ],
        vec![entry(EntryType::Char, "null", "", 0o666, b"")],
        vec![entry(EntryType::Fifo, "pipe", "", 0o666, b"")],
        vec![entry(EntryType::Regular, "su", "", 0o4755, b"x")],
    ];
    for entries in hostile {
        let (outer, done) = try_unpack(&entries);
        assert!(matches!(done, Err(UnpackError::Refused(_))), "{done:?}");
        assert!(!outer.path().join("evil").exists());
    }
}

#[test]
fn a_second_entry_with_the_same_name_does_not_replace_the_first() {
    let twice = entry(EntryType::Regular, "x", "", 0o644, b"x");
    let (_outer, done) = try_unpack(&[twice.clone(), twice]);
    assert!(matches!(done, Err(UnpackError::Write(..))), "{done:?}");
}

#[test]
fn a_truncated_stream_is_an_error_and_not_a_short_file() {
    let whole = entry(EntryType::Regular, "x", "", 0o644, &[7; 5000]);
    let (_outer, done) = try_unpack(&[whole[..2000].to_vec()]);
    assert!(matches!(done, Err(UnpackError::Stream(_))), "{done:?}");
}
