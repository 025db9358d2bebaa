//! The images of the conformance tests, made of one layer of Debian packages and of programs from the tests' modules.
//!
//! The tests name their images by what the original ones do. Here the shell, the web server and the network tools are
//! Debian's; agnhost, nonewprivs and sample-apiserver are the original programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kubeon_bundle::BundleStore;
use kubeon_bundle::pack::{self, Packed, TarContent, TarTree};
use kubeon_process::ProgramRun;

use super::programs::TestPrograms;
use crate::images::archive::{self, ImageProcess, OciImage};
use crate::images::debian;

/// The packages of the layer of ordinary programs.
const PACKAGES: &str = "bind9-dnsutils,busybox-static,ca-certificates,curl,etcd-server,iperf,iproute2,iptables,\
iputils-ping,netcat-openbsd,nginx-light,procps,wget";

/// What an image is made of.
struct Recipe {
    /// The last element of its name.
    name: &'static str,
    base: Base,
    /// Programs of the tests: path in the image, file name, permissions.
    programs: &'static [(&'static str, &'static str, u32)],
    /// Files of the sources of Kubernetes: path in the image, path in the sources.
    files: &'static [(&'static str, &'static str)],
    process: ImageProcess,
}

enum Base {
    /// The layer of Debian packages.
    Debian,
    /// Busybox from it, alone.
    Busybox,
}

const PATH: &[&str] = &["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
const AGNHOST: (&str, &str, u32) = ("agnhost", "agnhost", 0o755);

const fn process(
    user: &'static str,
    entrypoint: &'static [&'static str],
    command: &'static [&'static str],
) -> ImageProcess {
    ImageProcess { user, environment: PATH, entrypoint, command, folder: "/" }
}

static RECIPES: [Recipe; 10] = [
    Recipe {
        name: "agnhost",
        base: Base::Debian,
        programs: &[AGNHOST, ("agnhost-2", "agnhost", 0o755)],
        files: &[
            ("localhost.crt", "test/images/agnhost/porter/localhost.crt"),
            ("localhost.key", "test/images/agnhost/porter/localhost.key"),
        ],
        process: process("", &["/agnhost"], &["pause"]),
    },
    Recipe {
        name: "kitten",
        base: Base::Debian,
        programs: &[AGNHOST],
        files: &[
            ("kitten.jpg", "test/images/kitten/html/kitten.jpg"),
            ("data.json", "test/images/kitten/html/data.json"),
        ],
        process: process("", &["/agnhost"], &["test-webserver"]),
    },
    Recipe {
        name: "nautilus",
        base: Base::Debian,
        programs: &[AGNHOST],
        files: &[
            ("nautilus.jpg", "test/images/nautilus/html/nautilus.jpg"),
            ("data.json", "test/images/nautilus/html/data.json"),
        ],
        process: process("", &["/agnhost"], &["test-webserver"]),
    },
    Recipe {
        name: "busybox",
        base: Base::Busybox,
        programs: &[],
        files: &[],
        process: process("", &[], &["sh"]),
    },
    Recipe {
        name: "nginx",
        base: Base::Debian,
        programs: &[],
        files: &[],
        process: process("", &[], &["nginx", "-g", "daemon off;"]),
    },
    Recipe {
        name: "glibc-dns-testing",
        base: Base::Debian,
        programs: &[],
        files: &[],
        process: process("", &[], &["bash"]),
    },
    Recipe {
        name: "nonewprivs",
        base: Base::Debian,
        programs: &[("usr/local/bin/nnp", "nonewprivs", 0o4755)],
        files: &[],
        process: process("", &[], &["nnp"]),
    },
    Recipe {
        name: "nonroot",
        base: Base::Debian,
        programs: &[],
        files: &[],
        process: process("1234", &[], &["bash"]),
    },
    Recipe {
        name: "sample-apiserver",
        base: Base::Busybox,
        programs: &[("sample-apiserver", "sample-apiserver", 0o755)],
        files: &[],
        process: process("", &["/sample-apiserver"], &[]),
    },
    Recipe {
        name: "etcd",
        base: Base::Debian,
        programs: &[],
        files: &[],
        process: process("", &[], &["etcd"]),
    },
];

/// The archive of the images, and the images that tests name but nobody can make here.
pub(super) struct TestImages {
    pub(super) archive: PathBuf,
    pub(super) without_recipe: Vec<String>,
}

/// Builds the images that the tests of this version name.
pub(super) fn ensure(root: &Path, programs: &TestPrograms, out: &Path) -> Result<TestImages> {
    let cache = BundleStore::from_env().context("cannot find the cache folder")?.cache().join("images");
    fs::create_dir_all(&cache)?;
    let layers = tempfile::Builder::new().prefix("layers-").tempdir_in(&cache)?;
    let (known, without_recipe) = by_recipe(programs.images()?);
    let factory =
        Factory { programs, layers: layers.path(), base: Bases::ensure(root, &cache, layers.path())? };
    let images = known.iter().map(|(&recipe, names)| factory.image(&RECIPES[recipe], names.clone()));
    let images = images.collect::<Result<Vec<_>>>()?;
    let file = out.join("images.tar");
    archive::write(&images, layers.path(), &file)?;
    crate::terminal::say(&format!("{}  {} images", file.display(), known.values().flatten().count()));
    Ok(TestImages { archive: file, without_recipe })
}

/// The images by the index of their recipe, and those without one. Nodes have the pause image of their bundle.
fn by_recipe(images: Vec<String>) -> (BTreeMap<usize, Vec<String>>, Vec<String>) {
    let (mut known, mut unknown) = (BTreeMap::<usize, Vec<String>>::new(), Vec::new());
    for image in images {
        let name = image.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or_default();
        match RECIPES.iter().position(|recipe| recipe.name == name) {
            Some(recipe) if image.starts_with("registry.k8s.io/") => {
                known.entry(recipe).or_default().push(image)
            }
            _ if name == "pause" => {}
            _ => unknown.push(image),
        }
    }
    (known, unknown)
}

struct Factory<'a> {
    programs: &'a TestPrograms,
    layers: &'a Path,
    base: Bases,
}

impl Factory<'_> {
    fn image(&self, recipe: &'static Recipe, names: Vec<String>) -> Result<OciImage> {
        let mut tree = TarTree::new();
        for (path, name, mode) in recipe.programs {
            tree.insert((*path).to_owned(), TarContent::File { path: self.programs.path(name), mode: *mode });
        }
        for (path, source) in recipe.files {
            tree.insert(
                (*path).to_owned(),
                TarContent::File { path: self.programs.source(source)?, mode: 0o644 },
            );
        }
        let base = match recipe.base {
            Base::Debian => &self.base.debian,
            Base::Busybox => &self.base.busybox,
        };
        let mut layers = vec![base.clone()];
        if !tree.is_empty() {
            pack::add_parents(&mut tree);
            layers.push(pack::pack(&tree, self.layers)?);
        }
        Ok(OciImage { names, layers, process: &recipe.process })
    }
}

/// The lowest layers.
struct Bases {
    debian: Packed,
    busybox: Packed,
}

impl Bases {
    fn ensure(root: &Path, cache: &Path, layers: &Path) -> Result<Self> {
        let trim = fs::read_to_string(root.join("images/runner/root.sh"))?;
        let debian = debian::cached(cache, layers, &["conformance 1", PACKAGES, &trim], |folder| {
            debian::bootstrap(folder, PACKAGES)?;
            debian::inside(folder, &["sh", "-c", &trim])?;
            let mut tree = pack::tree(folder)?;
            complete(&mut tree);
            Ok(tree)
        })?;
        let busybox = debian::cached(cache, layers, &["conformance busybox 1"], |folder| {
            debian::bootstrap(folder, "busybox-static")?;
            busybox(folder)
        })?;
        Ok(Self { debian, busybox })
    }
}

/// What the original images have besides their programs: accounts that tests name, folders, and paths of programs.
fn complete(tree: &mut TarTree) {
    append(tree, "etc/passwd", "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n");
    append(
        tree,
        "etc/group",
        "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
    );
    for (path, mode) in [("uploads", 0o755), ("tmp", 0o1777)] {
        tree.insert(path.to_owned(), TarContent::Directory { mode });
    }
    tree.insert("usr/local/bin/etcd".to_owned(), TarContent::Link("/usr/bin/etcd".to_owned()));
}

fn append(tree: &mut TarTree, path: &str, lines: &str) {
    let before = match tree.get(path) {
        Some(TarContent::File { path, .. }) => fs::read(path).unwrap_or_default(),
        Some(TarContent::Bytes { bytes, .. }) => bytes.clone(),
        _ => Vec::new(),
    };
    let bytes = [before, lines.as_bytes().to_vec()].concat();
    tree.insert(path.to_owned(), TarContent::Bytes { bytes, mode: 0o644 });
}

/// Busybox with a link for each of its programs.
fn busybox(folder: &Path) -> Result<TarTree> {
    let program = folder.join("bin/busybox");
    let mut list = ProgramRun::dying_with_parent(&program, std::time::Duration::from_secs(60));
    list.command().arg("--list");
    let mut tree = TarTree::from([
        ("bin/busybox".to_owned(), TarContent::File { path: program, mode: 0o755 }),
        ("tmp".to_owned(), TarContent::Directory { mode: 0o1777 }),
        ("root".to_owned(), TarContent::Directory { mode: 0o700 }),
    ]);
    for name in list.stdout()?.lines().filter(|name| *name != "busybox") {
        tree.insert(format!("bin/{name}"), TarContent::Link("busybox".to_owned()));
    }
    for file in ["etc/passwd", "etc/group"] {
        let bytes = fs::read(folder.join(file))?;
        tree.insert(file.to_owned(), TarContent::Bytes { bytes, mode: 0o644 });
    }
    pack::add_parents(&mut tree);
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_has_the_recipe_of_its_name_and_the_others_are_listed() {
        let names = [
            "registry.k8s.io/e2e-test-images/agnhost:2.55",
            "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
            "gcr.io/k8s-authenticated-test/agnhost:2.6",
            "registry.k8s.io/pause:3.10.2",
            "registry.k8s.io/e2e-test-images/volume/nfs:1.6.0",
        ];
        let (known, unknown) = by_recipe(names.map(str::to_owned).to_vec());
        assert_eq!(known, BTreeMap::from([(0, names[..2].iter().map(|name| (*name).to_owned()).collect())]));
        assert_eq!(unknown, [names[2], names[4]]);
    }
}
