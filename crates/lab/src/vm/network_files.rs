//! The files by which a virtual machine sets up its network. Pure.

use std::fmt::Write as _;

use super::{network::Nic, options::VmOptions, profile::VmProfile};

/// A file on the disk of a host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostFile {
    /// From the root of the disk, without a leading slash.
    pub path: String,
    pub content: String,
    pub mode: u32,
}

/// One file per network card.
pub(crate) fn files(vm: &VmOptions, nics: &[Nic]) -> Vec<HostFile> {
    let file = |(i, nic): (usize, &Nic)| {
        let number = i + 1;
        if vm.has(VmProfile::NetworkManager) {
            HostFile {
                path: format!("etc/NetworkManager/system-connections/lab-{number}.nmconnection"),
                content: network_manager(number, nic),
                mode: 0o600,
            }
        } else {
            HostFile {
                path: format!("etc/systemd/network/10-lab-{number}.network"),
                content: networkd(nic),
                mode: 0o644,
            }
        }
    };
    nics.iter().enumerate().map(file).collect()
}

fn networkd(nic: &Nic) -> String {
    let mut text = format!("[Match]\nMACAddress={}\n\n[Network]\nAddress={}\n", nic.mac, nic.address);
    if let Some(gateway) = nic.gateway {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "Gateway={gateway}\nDNS={gateway}");
    }
    text
}

fn network_manager(number: usize, nic: &Nic) -> String {
    let mut text = format!(
        "[connection]\nid=lab-{number}\ntype=ethernet\n\n[ethernet]\nmac-address={}\n\n[ipv6]\nmethod=link-local\n\n\
         [ipv4]\nmethod=manual\naddress1={}",
        nic.mac, nic.address
    );
    if let Some(gateway) = nic.gateway {
        let _ = write!(text, ",{gateway}\ndns={gateway};");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VmOs;

    fn rendered(profiles: &[VmProfile], gateway: Option<&str>) -> HostFile {
        let vm = VmOptions::new(VmOs::Debian12, profiles.iter().copied()).unwrap();
        let nic = Nic {
            port: "h1".into(),
            bridge: "br0",
            mac: "02:6b:00:00:00:0b".into(),
            address: "172.30.0.11/24".parse().unwrap(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        };
        files(&vm, &[nic]).remove(0)
    }

    #[test]
    fn networkd_finds_its_card_by_the_hardware_address() {
        let file = rendered(&[], Some("172.30.0.1"));
        assert_eq!(file.path, "etc/systemd/network/10-lab-1.network");
        assert_eq!(
            file.content,
            "[Match]\nMACAddress=02:6b:00:00:00:0b\n\n[Network]\nAddress=172.30.0.11/24\n\
             Gateway=172.30.0.1\nDNS=172.30.0.1\n"
        );
        assert!(!rendered(&[], None).content.contains("Gateway"));
    }

    #[test]
    fn network_manager_gets_a_private_file() {
        let file = rendered(&[VmProfile::NetworkManager], Some("172.30.0.1"));
        assert_eq!(
            (file.path.as_str(), file.mode),
            ("etc/NetworkManager/system-connections/lab-1.nmconnection", 0o600)
        );
        assert!(file.content.ends_with("address1=172.30.0.11/24,172.30.0.1\ndns=172.30.0.1;\n"), "{file:?}");
        let without = rendered(&[VmProfile::NetworkManager], None);
        assert!(without.content.ends_with("address1=172.30.0.11/24\n"), "{without:?}");
    }
}
