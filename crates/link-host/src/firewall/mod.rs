//! Reads the rules of the active firewall from the output of its own program. The output is not trusted. A rule that
//! is not understood is left out, and the fact says so.

mod firewalld;
mod iptables;
mod matches;
mod nftables;
mod ufw;

use kubeon_wire::{FirewallFact, FirewallProgram, LinkFact};
use matches::{Chain, of_chains};

/// Maximum number of accepted lines.
const MAX_LINES: usize = 4096;
/// The line in place of rules that could not be read.
const UNREAD: &str = "(unread)";
/// Links of the pod network, which a cluster will add.
const POD_LINKS: [&str; 2] = ["cni0", "flannel.1"];

/// The lines of the probe about the firewall.
#[derive(Debug, Default)]
pub(crate) struct FirewallOutput {
    default_zone: String,
    /// The program of the first line.
    program: Option<FirewallProgram>,
    lines: Vec<(FirewallProgram, String)>,
    /// Whether its program did not print the rules, or not in time.
    unread: bool,
}

impl FirewallOutput {
    /// Adds a line of the probe.
    pub(crate) fn add(&mut self, key: &str, line: &str) {
        let program = match key {
            "firewalld" => FirewallProgram::Firewalld,
            "ufw" => FirewallProgram::Ufw,
            "nft" => FirewallProgram::Nftables,
            "iptables" => FirewallProgram::Iptables,
            _ => {
                line.trim_start_matches("DefaultZone=").trim().clone_into(&mut self.default_zone);
                return;
            }
        };
        self.unread |= line == UNREAD;
        self.program = self.program.or(Some(program));
        if self.lines.len() < MAX_LINES {
            self.lines.push((program, line.to_owned()));
        }
    }

    /// The firewall; `None` if none restricts packets.
    pub(crate) fn read(&self, links: &[LinkFact]) -> Option<FirewallFact> {
        let mut names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        names.extend(POD_LINKS);
        let program = self.program?;
        if self.unread {
            let (lets_in, forwards) = (Vec::new(), Vec::new());
            return Some(FirewallFact { program, lets_in, forwards, understood: false });
        }
        match program {
            FirewallProgram::Firewalld => {
                Some(firewalld::read(&self.lines_of(program), &self.default_zone, &names))
            }
            FirewallProgram::Ufw => ufw::read(&self.lines_of(program)),
            FirewallProgram::Nftables | FirewallProgram::Iptables => self.of_plain_rules(),
        }
    }

    /// The rules that nobody manages. A packet must pass those of nft and those of iptables.
    fn of_plain_rules(&self) -> Option<FirewallFact> {
        let (nft, of_iptables) =
            (self.lines_of(FirewallProgram::Nftables), self.lines_of(FirewallProgram::Iptables));
        let chain = |hook: &str, name: &str| {
            let of_iptables = iptables::chains(&of_iptables, name);
            Chain::of_all(nftables::chains(&nft, hook).into_iter().chain(of_iptables))
        };
        of_chains(chain("input", "INPUT"), chain("forward", "FORWARD"))
    }

    fn lines_of(&self, program: FirewallProgram) -> Vec<&str> {
        self.lines.iter().filter(|(of, _)| *of == program).map(|(_, line)| line.as_str()).collect()
    }
}

#[cfg(test)]
mod tests;
