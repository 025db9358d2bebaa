//! A bill of materials as SPDX 2.3 in JSON (<https://spdx.github.io/spdx-spec/v2.3/>). Equal contents give equal documents, so
//! it has no time.

use serde_json::{Value, json};

/// The identifier of the document itself.
pub const DOCUMENT: &str = "SPDXRef-DOCUMENT";

/// A bill of materials that is being written.
#[derive(Debug)]
pub struct SpdxDocument {
    name: String,
    edition: String,
    packages: Vec<Value>,
    relationships: Vec<Value>,
}

impl SpdxDocument {
    /// An empty one. Documents of one name differ by their edition.
    #[must_use]
    pub fn new(name: impl Into<String>, edition: impl Into<String>) -> Self {
        Self { name: name.into(), edition: edition.into(), packages: Vec::new(), relationships: Vec::new() }
    }

    /// Adds a package with fields of SPDX, unless one with its `SPDXID` was added before.
    pub fn package(&mut self, package: Value) {
        if !self.packages.iter().any(|known| known["SPDXID"] == package["SPDXID"]) {
            self.packages.push(package);
        }
    }

    /// Adds a relation between two packages, or between [`DOCUMENT`] and a package.
    pub fn relate(&mut self, from: &str, relation: &str, to: &str) {
        self.relationships.push(json!({
            "spdxElementId": from, "relationshipType": relation, "relatedSpdxElement": to,
        }));
    }

    /// The document.
    #[must_use]
    pub fn into_json(self) -> Value {
        json!({
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": DOCUMENT,
            "name": self.name,
            "documentNamespace": format!("https://kubeon.io/spdx/{}-{}", self.name, self.edition),
            "creationInfo": { "created": "1970-01-01T00:00:00Z", "creators": ["Tool: kubeon"] },
            "packages": self.packages,
            "relationships": self.relationships,
        })
    }
}

/// A reference to a package of a registry.
#[must_use]
pub fn purl(locator: &str) -> Value {
    json!({ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator })
}

/// An identifier of SPDX: letters, digits, points and hyphens.
#[must_use]
pub fn id(words: &[&str]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    format!("SPDXRef-{}", words.join("-").chars().map(plain).collect::<String>())
}
