//! The bill of materials of a bundle, as SPDX 2.3 in JSON. It follows from the manifest alone, so the same bundle always has
//! the same one.

use serde_json::{Value, json};

use crate::manifest::{DebianPackage, GoModule, PublishedFile};
use crate::spdx::{self, DOCUMENT, SpdxDocument, id, purl};
use crate::{BundleManifest, Part, PartSource};

/// The bill of materials: every part, and the modules and packages that it was made of.
#[must_use]
pub fn spdx(manifest: &BundleManifest) -> Value {
    let name = format!("kubeon-bundle-{}-{}", manifest.kubernetes, manifest.arch);
    let mut contents = BundleContents { document: SpdxDocument::new(name, manifest.inputs.as_str()) };
    for part in &manifest.parts {
        contents.add(part);
    }
    contents.document.into_json()
}

struct BundleContents {
    document: SpdxDocument,
}

impl BundleContents {
    fn add(&mut self, part: &Part) {
        let id = id(&["part", &part.name]);
        self.document.package(json!({
            "SPDXID": id,
            "name": part.name,
            "versionInfo": part.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "checksums": [{ "algorithm": "SHA256", "checksumValue": part.digest.as_str() }],
        }));
        self.document.relate(DOCUMENT, "DESCRIBES", &id);
        match &part.source {
            PartSource::GoModules { modules, toolchain } => {
                modules.iter().for_each(|module| self.module(&id, module));
                let compiler = spdx::id(&["tool", toolchain]);
                self.document.package(json!({
                    "SPDXID": compiler, "name": "go", "versionInfo": toolchain, "filesAnalyzed": false,
                    "downloadLocation": "NOASSERTION",
                }));
                self.document.relate(&compiler, "BUILD_TOOL_OF", &id);
            }
            PartSource::Debian { packages } => packages.iter().for_each(|package| self.debian(&id, package)),
            PartSource::Parts { names } => {
                names
                    .iter()
                    .for_each(|name| self.document.relate(&id, "CONTAINS", &spdx::id(&["part", name])));
            }
            PartSource::Published { files } => files.iter().for_each(|file| self.published(&id, file)),
            PartSource::Directory => {}
        }
    }

    fn module(&mut self, part: &str, module: &GoModule) {
        let id = id(&["go", &module.path, &module.version]);
        self.document.package(json!({
            "SPDXID": id,
            "name": module.path,
            "versionInfo": module.version,
            "downloadLocation": format!("https://proxy.golang.org/{}/@v/{}.zip", module.path, module.version),
            "filesAnalyzed": false,
            "comment": format!("go.sum {}", module.sum),
            "externalRefs": [purl(&format!("pkg:golang/{}@{}", module.path, module.version))],
        }));
        self.document.relate(part, "GENERATED_FROM", &id);
    }

    fn published(&mut self, part: &str, file: &PublishedFile) {
        let id = id(&["file", file.sha256.as_str()]);
        self.document.package(json!({
            "SPDXID": id,
            "name": file.url.rsplit('/').next().unwrap_or(&file.url),
            "downloadLocation": file.url,
            "filesAnalyzed": false,
            "checksums": [{ "algorithm": "SHA256", "checksumValue": file.sha256.as_str() }],
        }));
        self.document.relate(part, "GENERATED_FROM", &id);
    }

    fn debian(&mut self, part: &str, package: &DebianPackage) {
        let id = id(&["deb", &package.name, &package.version]);
        let version = package.version.replace(':', "%3A").replace('+', "%2B");
        self.document.package(json!({
            "SPDXID": id,
            "name": package.name,
            "versionInfo": package.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "checksums": [{ "algorithm": "SHA256", "checksumValue": package.sha256.as_str() }],
            "externalRefs": [purl(&format!("pkg:deb/debian/{}@{version}", package.name))],
        }));
        self.document.relate(part, "CONTAINS", &id);
    }
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
