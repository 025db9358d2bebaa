use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;

use super::*;
use kubeon_api::Version;

use crate::{
    Arch, BuildError, BuildOptions, BundleRemedy, BundleStore, Catalogue, Origin, PartKind, build,
    image::load_archive,
};

/// The smallest catalogue with every kind of part.
pub(crate) const CATALOGUE: [(&str, &str); 5] = [
    (
        "components.yaml",
        "tool: { expectedSeconds: 1, goModules: { modules: [] }, parts: [{ name: tool, programs: [{ name: tool, package: x/tool }] }, \
         { name: pair, programs: [{ name: left, package: x/left }, { name: right, package: x/right }] }] }\n\
         root: { expectedSeconds: 1, debian: { packages: [root] }, parts: [{ name: root, programs: [{ name: usr/sbin/root }] }] }\n",
    ),
    (
        "images.yaml",
        "tool: { reference: example.org/tool, layers: [root, tool], paths: { tool: /bin/tool }, entrypoint: [/tool], onHosts: true }\n\
         pair: { reference: example.org/pair, layers: [pair], entrypoint: [/bin/left] }\n",
    ),
    (
        "versions/v1.0.0.yaml",
        "{ kubernetes: v1.0.0, components: { tool: v1, root: debian }, tags: { tool: v1, pair: v9 } }",
    ),
    ("go/tool/v1/go.mod", "module x"),
    ("releases.yaml", "{ channels: { stable: v1.0.0, latest: v1.0.0 }, endOfLife: { \"1.0\": 2015-12-31 } }"),
];

fn elf(machine: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(18, 0);
    bytes.extend(machine.to_le_bytes());
    bytes.extend(b" and the rest of a program".repeat(100));
    bytes
}

pub(crate) struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(fixture.parts().join("bin")).unwrap();
        fs::create_dir_all(fixture.parts().join("root/usr/sbin")).unwrap();
        for file in ["tool", "bin/left", "bin/right", "root/usr/sbin/root"] {
            fs::write(fixture.parts().join(file), elf(Arch::native().elf_machine())).unwrap();
        }
        fixture
    }

    fn parts(&self) -> PathBuf {
        self.folder.path().join("parts")
    }

    fn store(&self) -> BundleStore {
        BundleStore::at(&self.folder.path().join("cache"))
    }

    pub(crate) fn build(&self) -> Result<Bundle, BuildError> {
        let catalogue = Catalogue::from_files(&CATALOGUE).unwrap();
        let from = Origin::Directory(self.parts());
        let options = BuildOptions {
            from,
            arch: Arch::native(),
            store: self.store(),
            refresh: false,
            compile_cache: None,
        };
        build(catalogue.entry(version()).unwrap(), &options, &|_| {})
    }
}

fn version() -> Version {
    "v1.0.0".parse().unwrap()
}

/// Changes one bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn builds_from_a_folder_and_opens_the_bundle_again() {
    let fixture = Fixture::new();
    let bundle = fixture.build().unwrap();
    bundle.verify().unwrap();
    let parts: Vec<(&str, PartKind)> =
        bundle.manifest().parts.iter().map(|p| (p.name.as_str(), p.kind)).collect();
    let wanted = [
        ("pair", PartKind::Archive),
        ("root", PartKind::Rootfs),
        ("tool", PartKind::Program),
        ("tool-image", PartKind::Image),
    ];
    assert_eq!(parts, wanted);
    assert_eq!(bundle.part("tool-image").unwrap().image.as_deref(), Some("example.org/tool:v1"));
    assert!(bundle.blob(&bundle.part("tool").unwrap().digest).is_file());
    let again = fixture.store().find(version(), Arch::native()).unwrap();
    assert_eq!(again.manifest(), bundle.manifest());
    assert_eq!(fixture.store().list().unwrap().len(), 1);
    assert!(bundle.part("kubelet").unwrap_err().to_string().contains("pair, root, tool, tool-image"));
}

#[test]
fn gives_the_same_bundle_for_the_same_files() {
    let (first, second) = (Fixture::new().build().unwrap(), Fixture::new().build().unwrap());
    assert_eq!(first.manifest(), second.manifest());
    let fixture = Fixture::new();
    fixture.build().unwrap();
    let again = fixture.build().unwrap();
    again.verify().unwrap();
    let left: Vec<_> = fs::read_dir(fixture.store().bundles()).unwrap().collect();
    assert_eq!(left.len(), 1, "a replaced bundle leaves no other folder");
}

#[test]
fn refuses_a_flipped_bit_and_names_its_place() {
    let fixture = Fixture::new();
    let bundle = fixture.build().unwrap();
    let places: Vec<PathBuf> =
        fs::read_dir(layout::blobs(bundle.root())).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(places.len(), 12, "4 parts, 2 images of config, manifest and links, 2 of the bundle's own");
    for place in places {
        let good = fs::read(&place).unwrap();
        flip(&place);
        let error = bundle.verify().unwrap_err();
        assert_eq!(error.damages.len(), 1, "{}: {error}", place.display());
        fs::write(&place, good).unwrap();
        bundle.verify().unwrap();
    }
    flip(&bundle.blob(&bundle.part("pair").unwrap().digest));
    let text = bundle.verify().unwrap_err().to_string();
    assert!(text.contains("part pair: its SHA-256 is"), "{text}");
}

#[test]
fn refuses_a_changed_index_and_a_missing_blob() {
    let fixture = Fixture::new();
    let bundle = fixture.build().unwrap();
    flip(&bundle.root().join(layout::LAYOUT_FILE));
    fs::remove_file(bundle.blob(&bundle.part("root").unwrap().digest)).unwrap();
    let error = bundle.verify().unwrap_err();
    let names: Vec<&str> = error.damages.iter().map(|damage| damage.what.as_str()).collect();
    assert_eq!(names, ["part root", layout::LAYOUT_FILE]);
    let index = bundle.root().join(layout::INDEX_FILE);
    let text = fs::read_to_string(&index).unwrap().replace("example.org/pair", "example.org/evil");
    fs::write(&index, text).unwrap();
    assert!(
        bundle
            .verify()
            .unwrap_err()
            .to_string()
            .contains("index.json: it differs from the file that the manifest implies")
    );
}

#[test]
fn refuses_newer_formats_and_damaged_or_missing_bundles() {
    let fixture = Fixture::new();
    let mut manifest = fixture.build().unwrap().manifest().clone();
    manifest.schema = SCHEMA + 1;
    let described = layout::describe(&manifest).unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::create_dir_all(layout::blobs(other.path())).unwrap();
    fs::write(layout::blob(other.path(), &described.config), &described.config_bytes).unwrap();
    fs::write(layout::blob(other.path(), &described.manifest), &described.manifest_bytes).unwrap();
    fs::write(other.path().join(layout::INDEX_FILE), &described.index).unwrap();
    assert!(Bundle::open(other.path()).unwrap_err().to_string().contains("newer"));
    flip(&layout::blob(other.path(), &described.config));
    assert!(Bundle::open(other.path()).unwrap_err().to_string().contains("has the digest"));
    let absent = fixture.store().find("v9.9.9".parse().unwrap(), Arch::native()).unwrap_err();
    assert_eq!(absent.remedy(), Some(BundleRemedy::Build("v9.9.9".parse().unwrap())));
}

#[test]
fn writes_an_archive_that_loads() {
    let fixture = Fixture::new();
    let bundle = fixture.build().unwrap();
    let path = fixture.folder.path().join("image.tar");
    for (name, reference) in [("tool", "example.org/tool:v1"), ("example.org/pair:v9", "example.org/pair:v9")]
    {
        let first = bundle.image_archive(name, &path).unwrap();
        assert_eq!(bundle.image_archive(name, &path).unwrap(), first);
        let loaded = load_archive(&path).unwrap();
        assert_eq!((loaded.names, loaded.digest), (vec![reference.to_owned()], first.digest));
    }
    // The part that hosts unpack contains the same archive.
    let archive = bundle.image_archive("tool", &path).unwrap();
    let blob = File::open(bundle.blob(&bundle.part("tool-image").unwrap().digest)).unwrap();
    let mut tar = tar::Archive::new(zstd::Decoder::new(blob).unwrap());
    let entry = tar.entries().unwrap().next().unwrap().unwrap();
    assert_eq!(entry.path().unwrap().to_str(), Some("image.tar"));
    assert_eq!(crate::digest::of_reader(entry).unwrap(), (archive.digest, archive.size));
}

#[test]
fn refuses_to_write_an_image_with_a_damaged_layer() {
    let fixture = Fixture::new();
    let bundle = fixture.build().unwrap();
    flip(&bundle.blob(&bundle.part("pair").unwrap().digest));
    let path = fixture.folder.path().join("image.tar");
    bundle.image_archive("pair", &path).unwrap_err();
    assert!(!path.exists());
}

#[test]
fn lists_all_missing_files_of_a_folder() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.parts().join("bin/right")).unwrap();
    fs::remove_dir_all(fixture.parts().join("root")).unwrap();
    let error = fixture.build().unwrap_err().to_string();
    assert!(error.contains("lacks 2 of the parts: root/usr/sbin/root, right"), "{error}");
    let fixture = Fixture::new();
    fs::write(fixture.parts().join("tool"), elf(2)).unwrap();
    assert!(fixture.build().unwrap_err().to_string().contains("another architecture"));
    fs::write(fixture.parts().join("tool"), "#!/bin/sh").unwrap();
    assert!(fixture.build().unwrap_err().to_string().contains("not a Linux program"));
}

#[test]
fn sources_are_words_addresses_and_folders() {
    let origin = |text: &str| text.parse::<Origin>();
    assert_eq!(origin("official").unwrap(), Origin::Official);
    assert_eq!(origin("go-modules").unwrap(), Origin::GoModules);
    assert_eq!(origin("https://mirror").unwrap(), Origin::Mirror("https://mirror".to_owned()));
    let error = origin("mirror").unwrap_err();
    assert!(error.to_string().contains("the address of a mirror"), "{error}");
    assert_eq!(error.remedy(), Some(BundleRemedy::ChooseSource));
}
