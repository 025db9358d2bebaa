//! The bill of materials of a bundle, as SPDX 2.3 in JSON. It follows from the manifest alone, so the same bundle always has
//! the same one.

use serde_json::{Value, json};

use crate::manifest::{DebianPackage, GoModule, PublishedFile};
use crate::{BundleManifest, Part, PartSource};

const DOCUMENT: &str = "SPDXRef-DOCUMENT";

/// The bill of materials: every part, and the modules and packages that it was made of.
#[must_use]
pub fn spdx(manifest: &BundleManifest) -> Value {
    let name = format!("kubeon-bundle-{}-{}", manifest.kubernetes, manifest.arch);
    let mut contents = Contents::default();
    for part in &manifest.parts {
        contents.add(part);
    }
    json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": name,
        "documentNamespace": format!("https://kubeon.io/spdx/{name}-{}", manifest.inputs),
        // A time would differ between two equal bundles.
        "creationInfo": { "created": "1970-01-01T00:00:00Z", "creators": ["Tool: kubeon"] },
        "packages": contents.packages,
        "relationships": contents.relationships,
    })
}

#[derive(Default)]
struct Contents {
    packages: Vec<Value>,
    relationships: Vec<Value>,
}

impl Contents {
    fn add(&mut self, part: &Part) {
        let id = id(&["part", &part.name]);
        self.package(json!({
            "SPDXID": id,
            "name": part.name,
            "versionInfo": part.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "checksums": [{ "algorithm": "SHA256", "checksumValue": part.digest.as_str() }],
        }));
        self.relate(DOCUMENT, "DESCRIBES", &id);
        match &part.source {
            PartSource::GoModules { modules, toolchain } => {
                modules.iter().for_each(|module| self.module(&id, module));
                let compiler = self::id(&["tool", toolchain]);
                self.package(json!({
                    "SPDXID": compiler, "name": "go", "versionInfo": toolchain, "filesAnalyzed": false,
                    "downloadLocation": "NOASSERTION",
                }));
                self.relate(&compiler, "BUILD_TOOL_OF", &id);
            }
            PartSource::Debian { packages } => packages.iter().for_each(|package| self.debian(&id, package)),
            PartSource::Parts { names } => {
                names.iter().for_each(|name| self.relate(&id, "CONTAINS", &self::id(&["part", name])));
            }
            PartSource::Published { files } => files.iter().for_each(|file| self.published(&id, file)),
            PartSource::Directory => {}
        }
    }

    fn module(&mut self, part: &str, module: &GoModule) {
        let id = id(&["go", &module.path, &module.version]);
        self.package(json!({
            "SPDXID": id,
            "name": module.path,
            "versionInfo": module.version,
            "downloadLocation": format!("https://proxy.golang.org/{}/@v/{}.zip", module.path, module.version),
            "filesAnalyzed": false,
            "comment": format!("go.sum {}", module.sum),
            "externalRefs": [purl(&format!("pkg:golang/{}@{}", module.path, module.version))],
        }));
        self.relate(part, "GENERATED_FROM", &id);
    }

    fn published(&mut self, part: &str, file: &PublishedFile) {
        let id = id(&["file", file.sha256.as_str()]);
        self.package(json!({
            "SPDXID": id,
            "name": file.url.rsplit('/').next().unwrap_or(&file.url),
            "downloadLocation": file.url,
            "filesAnalyzed": false,
            "checksums": [{ "algorithm": "SHA256", "checksumValue": file.sha256.as_str() }],
        }));
        self.relate(part, "GENERATED_FROM", &id);
    }

    fn debian(&mut self, part: &str, package: &DebianPackage) {
        let id = id(&["deb", &package.name, &package.version]);
        let version = package.version.replace(':', "%3A").replace('+', "%2B");
        self.package(json!({
            "SPDXID": id,
            "name": package.name,
            "versionInfo": package.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "checksums": [{ "algorithm": "SHA256", "checksumValue": package.sha256.as_str() }],
            "externalRefs": [purl(&format!("pkg:deb/debian/{}@{version}", package.name))],
        }));
        self.relate(part, "CONTAINS", &id);
    }

    /// Adds a package, unless another part added it before.
    fn package(&mut self, package: Value) {
        if !self.packages.iter().any(|known| known["SPDXID"] == package["SPDXID"]) {
            self.packages.push(package);
        }
    }

    fn relate(&mut self, from: &str, relation: &str, to: &str) {
        self.relationships.push(json!({
            "spdxElementId": from, "relationshipType": relation, "relatedSpdxElement": to,
        }));
    }
}

fn purl(locator: &str) -> Value {
    json!({ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator })
}

/// An identifier of SPDX: letters, digits, points and hyphens.
fn id(words: &[&str]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    format!("SPDXRef-{}", words.join("-").chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn digest(letter: char) -> crate::Digest {
        letter.to_string().repeat(64).parse().unwrap()
    }

    fn part(name: &str, source: PartSource) -> Part {
        Part {
            name: name.to_owned(),
            kind: crate::PartKind::Program,
            version: "v1".to_owned(),
            digest: digest('a'),
            size: 1,
            unpacked_size: 1,
            diff_id: digest('b'),
            tar_size: 1,
            image: None,
            programs: Vec::new(),
            source,
        }
    }

    fn manifest() -> BundleManifest {
        let module =
            GoModule { path: "k8s.io/kubernetes".into(), version: "v1.36.3".into(), sum: "h1:x=".into() };
        let modules =
            || PartSource::GoModules { modules: vec![module.clone()], toolchain: "go1.26.8".to_owned() };
        let package =
            DebianPackage { name: "haproxy".into(), version: "2:2.6+1".into(), sha256: digest('c') };
        BundleManifest {
            schema: crate::manifest::SCHEMA,
            kubernetes: "v1.36.3".parse().unwrap(),
            arch: crate::Arch::Amd64,
            created_from: "go-modules".to_owned(),
            inputs: digest('d'),
            parts: vec![
                part("kubelet", modules()),
                part("kube-proxy", modules()),
                part("haproxy", PartSource::Debian { packages: vec![package] }),
                part("coredns-image", PartSource::Parts { names: vec!["kubelet".to_owned()] }),
            ],
            images: Vec::new(),
        }
    }

    #[test]
    fn every_relation_is_between_packages_that_exist_once() {
        let document = spdx(&manifest());
        let packages = document["packages"].as_array().unwrap();
        let ids: BTreeSet<&str> =
            packages.iter().map(|package| package["SPDXID"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), packages.len());
        assert_eq!(packages.len(), 4 + 3, "four parts, a module, the compiler and a package");
        for relation in document["relationships"].as_array().unwrap() {
            for end in ["spdxElementId", "relatedSpdxElement"] {
                let id = relation[end].as_str().unwrap();
                assert!(id == DOCUMENT || ids.contains(id), "{relation}");
            }
        }
        assert_eq!(document, spdx(&manifest()));
    }

    #[test]
    fn modules_and_packages_have_locators() {
        let text = spdx(&manifest()).to_string();
        for locator in ["pkg:golang/k8s.io/kubernetes@v1.36.3", "pkg:deb/debian/haproxy@2%3A2.6%2B1"] {
            assert!(text.contains(locator), "{text}");
        }
        assert!(text.contains(&"c".repeat(64)));
    }
}
