//! Remedies for errors of labs, as data. The caller describes them in its own terms.

use std::path::Path;

use crate::Error;

/// What a user can do about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabRemedy {
    /// Install these Debian packages.
    InstallPackages(Vec<String>),
    /// Use another name for the lab.
    UseAnotherName,
    /// Create this lab.
    Create {
        /// The lab.
        lab: String,
    },
    /// Boot a host.
    Start {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
    },
    /// Use another name for the lab, or remove this lab.
    UseAnotherNameOrRemove {
        /// The lab.
        lab: String,
    },
    /// Remove this lab.
    Remove {
        /// The lab.
        lab: String,
    },
}

impl Error {
    /// What a user can do about it, if something is known.
    pub fn remedy(&self) -> Option<LabRemedy> {
        Some(match self {
            Self::MissingPrograms { packages, .. } => LabRemedy::InstallPackages(packages.clone()),
            Self::ForeignLab { .. } => LabRemedy::UseAnotherName,
            Self::OtherKind { lab, .. } => LabRemedy::UseAnotherNameOrRemove { lab: lab.clone() },
            Self::NoLab { name } => LabRemedy::Create { lab: name.clone() },
            Self::HostDead { lab, host } => LabRemedy::Start { lab: lab.clone(), host: host.clone() },
            Self::SubnetTaken { lab, .. } | Self::NoBase { lab, .. } => {
                LabRemedy::Remove { lab: lab.clone() }
            }
            Self::Version { path, .. } => LabRemedy::Remove { lab: lab_of(path)? },
            _ => return None,
        })
    }
}

/// The lab of a state file: its folder has the name of the lab.
fn lab_of(state_file: &Path) -> Option<String> {
    Some(state_file.parent()?.file_name()?.to_str()?.to_owned())
}
