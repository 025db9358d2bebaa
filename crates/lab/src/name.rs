//! Names. Every object of a lab on the machine contains the lab's name, so that it can be found without a state file.

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Name of a lab: 1 to 32 of `a-z`, `0-9` and `-`, beginning and ending with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabName(String);

impl LabName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name of the machine's link to the lab; 10 characters, the kernel allows 15.
    pub(crate) fn link(&self) -> String {
        format!("kl{}", hex::encode(&self.digest()[..4]))
    }

    /// Metric of the machine's unreachable route to the lab's subnet. Every real route has a lower metric and wins;
    /// the low bits identify the lab.
    pub(crate) fn metric(&self) -> u32 {
        let d = self.digest();
        0x6b00_0000 | u32::from_be_bytes([0, d[0], d[1], d[2]])
    }

    /// Hardware address of a host, the same after every boot, so that neighbour caches stay valid.
    pub(crate) fn mac(&self, octet: u8) -> String {
        self.mac_of_kind(0x02, octet)
    }

    /// Hardware address of a host's second network card.
    pub(crate) fn second_mac(&self, octet: u8) -> String {
        self.mac_of_kind(0x06, octet)
    }

    fn mac_of_kind(&self, first: u8, octet: u8) -> String {
        let d = self.digest();
        format!("{first:02x}:6b:{:02x}:{:02x}:{:02x}:{octet:02x}", d[0], d[1], d[2])
    }

    /// The third octet of the subnet that is tried first; it differs between most labs.
    pub(crate) fn preferred_subnet(&self) -> u8 {
        if self.0 == Self::DEFAULT { 0 } else { 1 + self.digest()[4] % 254 }
    }

    /// The lab that commands use unless a name is given.
    pub const DEFAULT: &str = "default";

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl Default for LabName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for LabName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let refuse = |reason| Err(Error::Name { name: name.to_owned(), reason });
        if name.is_empty() || name.len() > 32 {
            return refuse("must have 1 to 32 characters");
        }
        if !name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-') {
            return refuse("may contain only a-z, 0-9 and -");
        }
        if name.starts_with('-') || name.ends_with('-') {
            return refuse("must begin and end with a letter or digit");
        }
        Ok(Self(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_are_unsafe_as_a_folder() {
        for bad in ["", ".", "..", "a/b", "-a", "a-", "A", "a b", "ä", &"x".repeat(33)] {
            assert!(bad.parse::<LabName>().is_err(), "{bad:?} was accepted");
        }
        for good in ["a", "default", "ci-42", &"x".repeat(32)] {
            assert!(good.parse::<LabName>().is_ok(), "{good:?} was refused");
        }
    }

    #[test]
    fn the_longest_name_still_fits_a_link() {
        let long: LabName = "x".repeat(32).parse().unwrap();
        assert!(long.link().len() <= 15);
    }

    #[test]
    fn the_objects_of_two_labs_have_different_names() {
        let (a, b): (LabName, LabName) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert_ne!(a.link(), b.link());
        assert_ne!(a.metric(), b.metric());
        assert_ne!(a.mac(11), b.mac(11));
        assert_ne!(a.mac(11), a.mac(12));
    }

    #[test]
    fn a_hardware_address_is_local_and_unicast() {
        for mac in [LabName::default().mac(11), LabName::default().second_mac(11)] {
            assert_eq!(u8::from_str_radix(&mac[..2], 16).unwrap() & 0b11, 0b10);
        }
    }
}
