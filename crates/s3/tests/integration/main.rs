//! A real object store.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::net::Ipv4Addr;

use kubeon_envtest::TestObjectStore;
use kubeon_s3::{S3Address, S3Bucket, S3Error, S3Keys, S3Settings};

fn settings(store: &TestObjectStore) -> S3Settings {
    S3Settings {
        endpoint: Some(store.endpoint()),
        region: None,
        authorities: Some(store.authority()),
        keys: Some(S3Keys {
            access_key: TestObjectStore::ACCESS_KEY.to_owned(),
            secret_key: store.secret_key().into(),
            session_token: None,
        }),
    }
}

fn address(text: &str) -> S3Address {
    text.parse().unwrap()
}

#[test]
#[ignore = "compiles an object store: ./test long"]
fn soak_objects_are_written_listed_read_and_removed() {
    let store = TestObjectStore::start("backups", Ipv4Addr::LOCALHOST).unwrap();
    let prefix = address("s3://backups/shop/");
    let bucket = S3Bucket::new(&settings(&store), &prefix).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    // Names with letters that a URL must encode.
    let names = ["a.db", "b +%2F#ü.db", "c.db"];
    for (index, name) in names.iter().enumerate() {
        fs::write(&from, vec![index as u8; 3_000_000 * index]).unwrap();
        bucket.upload(&from, &prefix.join(name)).unwrap();
        bucket.download(&prefix.join(name), &to).unwrap();
        assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap(), "{name}");
        assert!(store.data().join("backups/shop").join(name).is_file(), "{name}");
    }
    let listed = bucket.list(&prefix).unwrap();
    assert_eq!(listed.iter().map(S3Address::file_name).collect::<Vec<_>>(), names);
    bucket.upload(&from, &prefix.join("a.db")).unwrap();
    bucket.remove(&prefix.join("b +%2F#ü.db")).unwrap();
    bucket.remove(&prefix.join("b +%2F#ü.db")).unwrap();
    assert_eq!(bucket.list(&prefix).unwrap().len(), 2);
    assert!(bucket.list(&address("s3://backups/other/")).unwrap().is_empty());
}

#[test]
#[ignore = "compiles an object store: ./test long"]
fn soak_what_a_store_refuses_is_named_without_the_signature() {
    let store = TestObjectStore::start("backups", Ipv4Addr::LOCALHOST).unwrap();
    let (object, absent) = (address("s3://backups/a.db"), address("s3://elsewhere/a.db"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    let mut wrong = settings(&store);
    wrong.keys = wrong.keys.map(|keys| S3Keys { secret_key: "wrong".into(), ..keys });
    let denied = S3Bucket::new(&wrong, &object).unwrap().upload(&file, &object).unwrap_err();
    assert!(matches!(denied, S3Error::Denied { .. }), "{denied:?}");
    assert!(denied.to_string().contains("s3://backups/a.db"), "{denied}");
    assert!(!store.data().join("backups/a.db").exists());
    let bucket = S3Bucket::new(&settings(&store), &object).unwrap();
    let error = bucket.download(&object, &file).unwrap_err();
    assert!(matches!(&error, S3Error::Absent { code, .. } if code == "NoSuchKey"), "{error:?}");
    let error = S3Bucket::new(&settings(&store), &absent).unwrap().upload(&file, &absent).unwrap_err();
    assert!(matches!(&error, S3Error::Absent { code, .. } if code == "NoSuchBucket"), "{error:?}");
    // The authorities of this machine did not sign the certificate.
    let untrusted = S3Settings { authorities: None, ..settings(&store) };
    let error = S3Bucket::new(&untrusted, &object).unwrap().download(&object, &file).unwrap_err();
    assert!(matches!(error, S3Error::Server { .. }), "{error:?}");
    assert!(!format!("{error} {denied}").contains("X-Amz-Signature"), "{error} {denied}");
    let silent = S3Settings { keys: None, ..settings(&store) };
    assert!(matches!(S3Bucket::new(&silent, &object), Err(S3Error::Settings(_))));
}
