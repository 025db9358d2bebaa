//! The index as Debian publishes it, and the same answers as apt's.

use super::*;

const MAIN: &str = "Package: haproxy\nVersion: 2.6.12-1\nPre-Depends: dpkg (>= 1.17.14)\nDepends: libc6 (>= 2.34), liblua5.3-0 | lua, \
                    perl:any\nFilename: pool/main/h/haproxy.deb\nSHA256: {}\n\nPackage: libc6\nVersion: 2.36-9\nFilename: a\nSHA256: {}\n\n\
                    Package: perl\nVersion: 5.36\nDepends: awk-virtual\nFilename: p\nSHA256: {}\n\nPackage: mawk\nVersion: 1\nProvides: \
                    awk-virtual (= 1), other\nFilename: m\nSHA256: {}\n\nPackage: lua\nVersion: 5\nFilename: l\nSHA256: {}\n";

fn index(texts: &[&str]) -> DebianIndex {
    let mut all = BTreeMap::new();
    for text in texts {
        add_packages(&mut all, &text.replace("{}", &"ab".repeat(32)), "https://deb.test/debian");
    }
    DebianIndex(all)
}

fn recipe(packages: &[&str], excluded: &[&str]) -> DebianRecipe {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    DebianRecipe {
        packages: texts(packages),
        excluded: texts(excluded),
        prune: vec![],
        keep: vec![],
        directories: vec![],
        links: BTreeMap::new(),
        files: BTreeMap::new(),
    }
}

fn with_task<T>(test: impl FnOnce(&ComponentBuild<'_>) -> T) -> T {
    let entry = crate::Catalogue::embedded().unwrap();
    let entry = entry.entry("v1.36.3".parse().unwrap()).unwrap();
    let reporter = crate::build::progress::Reporter::new(&|_| {});
    let component = entry.component("haproxy").unwrap();
    let arch = crate::Arch::Amd64;
    test(&ComponentBuild { component, arch, compiled: Path::new(""), reporter: &reporter })
}

#[test]
fn dependencies_are_the_first_alternative_that_exists_or_what_provides_it() {
    let index = index(&[MAIN]);
    let names = with_task(|task| index.resolve(task, &recipe(&["haproxy"], &["dpkg"])).unwrap());
    let names: Vec<&str> = names.iter().map(|wanted| wanted.package.name.as_str()).collect();
    assert_eq!(names, ["haproxy", "libc6", "lua", "mawk", "perl"]);
    let missing = with_task(|task| index.resolve(task, &recipe(&["haproxy"], &[])).unwrap_err().to_string());
    assert!(missing.contains("none of the packages dpkg"), "{missing}");
    let unknown = with_task(|task| index.resolve(task, &recipe(&["nowhere"], &[])).unwrap_err().to_string());
    assert!(unknown.contains("no package nowhere"), "{unknown}");
}

#[test]
fn the_newest_version_of_all_suites_is_taken() {
    let security = "Package: libc6\nVersion: 2.36-9+deb12u14\nFilename: s\nSHA256: {}\n";
    for order in [[MAIN, security], [security, MAIN]] {
        let index = index(&order);
        assert_eq!(index.0["libc6"].version, "2.36-9+deb12u14");
    }
}

#[test]
fn the_digest_of_an_index_is_that_of_the_sha256_section() {
    let (md5, sha256) = ("0".repeat(32), "ab".repeat(32));
    let release = format!(
        "Suite: x\nMD5Sum:\n {md5} 12 main/P.xz\nSHA256:\n {sha256} 12 main/P.xz\nEnd: 1\n {md5} 1 other\n"
    );
    assert_eq!(listed_digest(&release, "main/P.xz").unwrap().as_str(), sha256);
    assert_eq!(listed_digest(&release, "other"), None);
}

#[test]
fn a_document_that_no_key_of_debian_signed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let unsigned =
        with_task(|task| verify(task, b"Suite: bookworm\n", folder.path()).unwrap_err().to_string());
    assert!(unsigned.contains("verify the signature of Debian's index"), "{unsigned}");
}

#[test]
fn an_index_that_is_no_longer_valid_is_refused() {
    let check = |release: &str, now: &str| {
        with_task(|task| check_validity(task, release, "bookworm-security", now.parse().unwrap()))
            .map_err(|error| error.to_string())
    };
    let release = "Suite: x\nValid-Until: Sat, 28 Nov 2026 10:10:32 UTC\nEnd: 1\n";
    assert_eq!(check(release, "2026-11-28T10:10:32Z"), Ok(()));
    let late = check(release, "2026-11-28T10:10:33Z").unwrap_err();
    assert!(late.contains("bookworm-security was valid until Sat, 28 Nov 2026 10:10:32 UTC"), "{late}");
    assert_eq!(check("Suite: x\n", "2036-01-01T00:00:00Z"), Ok(()), "a suite without a limit");
    assert!(check("Valid-Until: tomorrow\n", "2026-01-01T00:00:00Z").unwrap_err().contains("tomorrow"));
}

/// Asks Debian's own servers, as the build of a bundle with the source go-modules does by apt.
#[test]
fn debians_own_index_gives_packages_that_apt_gives_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(None, folder.path()).unwrap();
    with_task(|task| {
        let crate::catalogue::Recipe::Debian(recipe) = &task.component.recipe else {
            panic!("not of Debian")
        };
        let index = DebianIndex::fetch(task, &server, folder.path()).unwrap();
        let found: BTreeSet<String> =
            index.resolve(task, recipe).unwrap().into_iter().map(|wanted| wanted.package.name).collect();
        let wanted: BTreeSet<String> = super::super::debian::resolve(task, recipe)
            .unwrap()
            .into_iter()
            .map(|package| package.name)
            .collect();
        // apt does not know which packages are excluded, so it also gives what only those depend on.
        let others: Vec<_> = wanted.difference(&found).collect();
        assert!(found.is_subset(&wanted) && others.len() <= 1, "{found:?}, not {others:?}");
    });
}
