//! What the hosts of a lab are.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, LabName, Result, vm::options::VmOptions};

/// What the hosts of a lab are; the same for all of them, and unchangeable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostKind {
    /// Namespaces on the machine's kernel.
    #[default]
    Namespaces,
    /// Virtual machines with a kernel of their own.
    Vm(VmOptions),
}

impl HostKind {
    /// The options of virtual machines.
    pub fn vm(&self) -> Option<&VmOptions> {
        match self {
            Self::Namespaces => None,
            Self::Vm(options) => Some(options),
        }
    }

    /// Whether these are namespaces on the machine's kernel.
    pub(crate) fn is_namespaces(&self) -> bool {
        *self == Self::Namespaces
    }

    /// The kind of a lab whose state says `known`, if a command asks for `asked`. A lab never changes its kind.
    pub(crate) fn resolve(lab: &LabName, known: Option<&Self>, asked: Option<&Self>) -> Result<Self> {
        match (known, asked) {
            (Some(known), Some(asked)) if known != asked => Err(Error::OtherKind {
                lab: lab.to_string(),
                present: known.to_string(),
                asked: asked.to_string(),
            }),
            (known, asked) => Ok(known.or(asked).cloned().unwrap_or_default()),
        }
    }
}

impl fmt::Display for HostKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespaces => f.write_str("namespaces"),
            Self::Vm(options) => write!(f, "vm {options}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabRemedy;
    use crate::{VmOs, VmProfile};

    fn vm(os: VmOs, profiles: &[VmProfile]) -> HostKind {
        HostKind::Vm(VmOptions::new(os, profiles.iter().copied()).unwrap())
    }

    #[test]
    fn a_lab_keeps_its_kind_and_a_new_one_has_namespaces() {
        let (lab, debian) = (LabName::default(), vm(VmOs::Debian11, &[VmProfile::Ufw]));
        assert_eq!(HostKind::resolve(&lab, None, None).unwrap(), HostKind::Namespaces);
        assert_eq!(HostKind::resolve(&lab, Some(&debian), None).unwrap(), debian);
        assert_eq!(HostKind::resolve(&lab, Some(&debian), Some(&debian)).unwrap(), debian);
        for other in [HostKind::Namespaces, vm(VmOs::Debian12, &[VmProfile::Ufw]), vm(VmOs::Debian11, &[])] {
            let error = HostKind::resolve(&lab, Some(&debian), Some(&other)).unwrap_err();
            assert!(error.to_string().contains("vm debian-11 ufw"), "{error}");
            assert_eq!(error.remedy(), Some(LabRemedy::UseAnotherNameOrRemove { lab: lab.to_string() }));
        }
    }
}
