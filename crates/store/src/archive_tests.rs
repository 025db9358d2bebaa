use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

fn name() -> ClusterName {
    "demo".parse().unwrap()
}

struct Home {
    _folder: tempfile::TempDir,
    store: Store,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("home"));
    Home { _folder: folder, store }
}

/// A cluster with all its files.
fn full() -> Home {
    let home = home();
    let store = &home.store;
    let lock = store.lock(&name(), "kubeon create").unwrap();
    let mut state = ClusterState::new(name(), json!({"masters": ["172.30.0.11"]}));
    store.save(&lock, &mut state).unwrap();
    file::write_private(&store.secret_folder(&name()).join("ca.pem"), b"secret one").unwrap();
    file::write_private(&store.secret_folder(&name()).join("etcd/ca.pem"), b"secret two").unwrap();
    store.save_kubeconfig(&lock, "kind: Config").unwrap();
    store.save_known_hosts(&lock, "172.30.0.11 ssh-ed25519 AAAA\n").unwrap();
    drop(lock);
    home
}

fn exported(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.export(&name(), &mut bytes).unwrap();
    bytes
}

fn import(store: &Store, bytes: &[u8]) -> Result<Imported, StoreError> {
    store.import(&store.lock(&name(), "kubeon state import").unwrap(), bytes)
}

fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    for (name, kind, content) in entries {
        let mut header = Header::new_old();
        // Bypasses the checks of the crate, as an attacker would.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o777);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

#[test]
fn an_imported_state_is_equal_and_private() {
    let (here, there) = (full(), home());
    assert_eq!(import(&there.store, &exported(&here.store)).unwrap(), Imported::Taken);
    assert_eq!(exported(&there.store), exported(&here.store));
    let base = there.store.base();
    for entry in ["demo.json", "secret/demo/ca.pem", "secret/demo/etcd/ca.pem", "known_hosts/demo"] {
        let mode = fs::metadata(base.join(entry)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{entry}");
    }
    for entry in ["", "secret", "secret/demo", "secret/demo/etcd", "conf", "conf/cluster"] {
        let mode = fs::metadata(base.join(entry)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{entry}");
    }
    assert_eq!(import(&there.store, &exported(&here.store)).unwrap(), Imported::Equal);
}

#[test]
fn replaces_an_older_state_and_never_a_newer_one() {
    let (here, there) = (full(), home());
    let old = exported(&here.store);
    import(&there.store, &old).unwrap();
    let lock = here.store.lock(&name(), "kubeon create").unwrap();
    let mut state: ClusterState<Value> = here.store.load(&name()).unwrap();
    state.generation += 1;
    here.store.save(&lock, &mut state).unwrap();
    fs::remove_file(here.store.secret_folder(&name()).join("etcd/ca.pem")).unwrap();
    drop(lock);
    let new = exported(&here.store);
    assert_eq!(import(&there.store, &new).unwrap(), Imported::Taken);
    assert!(!there.store.secret_folder(&name()).join("etcd/ca.pem").exists(), "the folder is replaced");
    let refused = import(&there.store, &old).unwrap_err();
    assert!(matches!(refused, StoreError::NewerHere { generation: 1, .. }), "{refused}");
    assert_eq!(exported(&there.store), new, "a refused import changes nothing");
    let left: Vec<_> = fs::read_dir(there.store.base().join("secret")).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary folder is left: {left:?}");
}

#[test]
fn refuses_another_cluster_of_the_same_name() {
    let (here, there) = (full(), full());
    let refused = import(&there.store, &exported(&here.store)).unwrap_err();
    assert!(matches!(refused, StoreError::OtherCluster { .. }), "{refused}");
}

#[test]
fn an_archive_cannot_write_elsewhere() {
    let state = exported(&full().store);
    let state = unpack(state.as_slice()).unwrap().remove(STATE).unwrap();
    let regular = EntryType::Regular;
    for bad in
        ["../evil", "/etc/evil", "secret/../../evil", "secret//evil", "secret/.evil", "other", "secret/"]
    {
        let there = home();
        let bytes = archive(&[(STATE, regular, &state), (bad, regular, b"x")]);
        let refused = import(&there.store, &bytes).unwrap_err().to_string();
        assert!(refused.contains("not part of a state"), "{bad}: {refused}");
        assert!(!there.store.exists(&name()), "{bad}");
    }
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Directory, EntryType::Fifo] {
        let bytes = archive(&[(STATE, regular, &state), ("secret/x", kind, b"")]);
        assert!(import(&home().store, &bytes).is_err(), "{kind:?}");
    }
    let twice = archive(&[(STATE, regular, &state), (STATE, regular, &state)]);
    assert!(import(&home().store, &twice).unwrap_err().to_string().contains("twice"));
}

#[test]
fn refuses_files_that_are_not_an_archive_of_the_cluster() {
    let regular = EntryType::Regular;
    for (bytes, words) in [
        (b"not an archive".to_vec(), "cannot be read"),
        (archive(&[(KNOWN_HOSTS, regular, b"x")]), "contains no state"),
        (archive(&[(STATE, regular, b"{}")]), "another program wrote"),
        (archive(&[(STATE, regular, b"{\"schema\": 1}")]), "its state cannot be read"),
        (exported(&full().store)[..200].to_vec(), "cannot be read"),
    ] {
        let there = home();
        let refused = import(&there.store, &bytes).unwrap_err().to_string();
        assert!(refused.contains(words), "{words}: {refused}");
        assert!(!there.store.exists(&name()));
    }
    let there = home();
    let other: ClusterName = "other".parse().unwrap();
    let lock = there.store.lock(&other, "kubeon state import").unwrap();
    let refused = there.store.import(&lock, exported(&full().store).as_slice()).unwrap_err().to_string();
    assert!(refused.contains("it belongs to demo, not to other"), "{refused}");
}

#[test]
fn an_adopted_cluster_replaces_old_keys_and_never_a_state() {
    let home = full();
    let store = &home.store;
    let lock = store.lock(&name(), "kubeon adopt").unwrap();
    let mut state = ClusterState::new(name(), json!({"masters": ["172.30.0.11"]}));
    let keys = BTreeMap::from([("ca.pem".to_owned(), "adopted".to_owned())]);
    let refused = store.adopt(&lock, &mut state, &keys).unwrap_err();
    assert!(matches!(refused, StoreError::Exists(_)), "{refused}");
    let folder = store.secret_folder(&name());
    assert_eq!(fs::read_to_string(folder.join("ca.pem")).unwrap(), "secret one");

    fs::remove_file(store.state_path(&name())).unwrap();
    store.adopt(&lock, &mut state, &keys).unwrap();
    assert_eq!(store.load::<Value>(&name()).unwrap(), state);
    assert_eq!(fs::read_to_string(folder.join("ca.pem")).unwrap(), "adopted");
    assert!(!folder.join("etcd").exists(), "the keys of the state that was lost are replaced");
    for file in [folder.join("ca.pem"), store.state_path(&name())] {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
}
