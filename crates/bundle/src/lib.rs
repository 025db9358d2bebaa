//! The artifacts of a Kubernetes version: its parts, their build and their verification.
//!
//! ```text
//!   catalogue/*.yaml, go.mod, go.sum          (data: what is supported)
//!          │ Catalogue::entry(version)
//!          ▼
//!   build::build ──► component cache ──► OCI image layout  STORE/<version>-<arch>/
//!     go modules       one blob a part     index.json → manifest → BundleManifest
//!     Debian           (tar + zstd)                            │
//!     a folder                                                 ▼
//!                             Bundle::open · part · blob · verify · image_archive
//!                                    ▲ archive::save, load ▼   one file
//! ```
//!
//! The crate may start `go` and `apt-get`, and may write in its store and cache. It does not access hosts, prints
//! nothing, and is independent of clusters.

pub mod archive;
pub mod build;
pub mod bundle;
mod cache;
pub mod catalogue;
mod digest;
pub mod image;
mod layout;
pub mod manifest;
pub mod pack;
mod remedy;
pub mod sbom;
pub mod signature;
pub mod spdx;
pub mod store;

pub use archive::BundleArchiveError;
pub use build::{BuildError, BuildOptions, BuildProgress, BuildState, Origin, build};
pub use bundle::{Bundle, BundleError, Damage, VerifyError};
pub use catalogue::{Catalogue, CatalogueEntry, CatalogueError};
pub use kubeon_api::{Arch, Digest, Version};
pub use manifest::{BundleManifest, Image, Part, PartKind, PartSource};
pub use remedy::BundleRemedy;
pub use signature::{SignatureError, TrustedSigners};
pub use store::BundleStore;
