use super::*;
use crate::Arch;
use crate::bundle::tests::Fixture;

/// A saved bundle, and a store to load it into.
struct SavedBundle {
    fixture: Fixture,
    folder: tempfile::TempDir,
    archive: ArchiveFile,
}

impl SavedBundle {
    fn new() -> Self {
        let fixture = Fixture::new();
        let bundle = fixture.build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let archive = save(&bundle, &folder.path().join("bundle.tar")).unwrap();
        Self { fixture, folder, archive }
    }

    fn store(&self) -> BundleStore {
        BundleStore::at(&self.folder.path().join("cache"))
    }

    /// Loads other bytes in place of the archive. Nothing but the bundles from before may be in the store then.
    fn refused(&self, bytes: &[u8]) -> String {
        let path = self.folder.path().join("other.tar");
        fs::write(&path, bytes).unwrap();
        let before = self.store().list().unwrap().len();
        let error = load(&self.store(), &path).unwrap_err();
        let left = fs::read_dir(self.store().bundles()).unwrap().count();
        assert_eq!(left, before, "nothing half-written stays: {error}");
        error.to_string()
    }
}

#[test]
fn a_bundle_is_the_same_after_the_gap() {
    let saved = SavedBundle::new();
    let bundle = load(&saved.store(), &saved.archive.path).unwrap();
    bundle.verify().unwrap();
    let there = saved.fixture.build().unwrap();
    assert_eq!(bundle.manifest(), there.manifest());
    assert!(saved.store().find(bundle.manifest().kubernetes, Arch::native()).is_ok());
    let again = save(&bundle, &saved.folder.path().join("again.tar")).unwrap();
    assert_eq!((again.digest, again.size), (saved.archive.digest.clone(), saved.archive.size));
    load(&saved.store(), &saved.archive.path).unwrap();
    assert_eq!(fs::read_dir(saved.store().bundles()).unwrap().count(), 1, "it replaces the same bundle");
}

#[test]
fn half_an_archive_is_refused_and_leaves_nothing() {
    let saved = SavedBundle::new();
    let bytes = fs::read(&saved.archive.path).unwrap();
    // An archive ends with zeros: without them it is still complete.
    let content = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for length in [content / 100, content / 10, content / 2, content * 9 / 10, content] {
        saved.refused(&bytes[..length]);
    }
    assert!(saved.refused(b"").contains("is not the archive of a bundle"));
    assert!(saved.refused(&vec![b'x'; 4096]).contains("cannot be read"));
}

#[test]
fn a_changed_part_is_named_and_the_old_bundle_stays() {
    let saved = SavedBundle::new();
    load(&saved.store(), &saved.archive.path).unwrap();
    let mut bytes = fs::read(&saved.archive.path).unwrap();
    let middle = bytes.len() / 2;
    let place = (middle..bytes.len()).find(|place| bytes[*place] != 0).unwrap();
    bytes[place] ^= 1;
    let error = saved.refused(&bytes);
    let found = ["is damaged", "is not the archive", "cannot be read"];
    assert!(found.iter().any(|word| error.contains(word)), "{error}");
    saved.store().list().unwrap().remove(0).1.unwrap().verify().unwrap();
}

#[test]
fn an_archive_cannot_write_outside_of_its_folder() {
    let saved = SavedBundle::new();
    let archive = |name: &str, kind: EntryType| {
        let mut builder = Builder::new(Vec::new());
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(if kind == EntryType::Regular { 4 } else { 0 });
        header.set_mode(0o644);
        header.set_entry_type(kind);
        header.set_cksum();
        builder.append(&header, if kind == EntryType::Regular { &b"evil"[..] } else { &[] }).unwrap();
        builder.into_inner().unwrap()
    };
    for name in ["../evil", "/tmp/evil", "blobs/sha256/evil", "blobs/../../evil", "etc/passwd"] {
        let error = saved.refused(&archive(name, EntryType::Regular));
        assert!(error.contains("it contains"), "{name}: {error}");
    }
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo] {
        assert!(saved.refused(&archive(INDEX_FILE, kind)).contains("it contains index.json"));
    }
}

#[test]
fn a_missing_archive_and_a_folder_without_permission_are_named() {
    let saved = SavedBundle::new();
    let missing = saved.folder.path().join("missing.tar");
    assert!(load(&saved.store(), &missing).unwrap_err().to_string().contains("missing.tar"));
    let bundle = saved.fixture.build().unwrap();
    let nowhere = saved.folder.path().join("no/such/folder.tar");
    assert!(save(&bundle, &nowhere).unwrap_err().to_string().contains("cannot be written"));
}
