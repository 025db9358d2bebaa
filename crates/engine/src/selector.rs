//! Host selectors: `CLUSTER@SEL`.

use std::net::Ipv4Addr;

use kubeon_api::HostRole;

use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// A host of a cluster, for selectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name; the address if the host has no name yet.
    pub name: String,
    /// The address.
    pub address: Ipv4Addr,
    /// The role.
    pub role: HostRole,
}

/// The part after the `@`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// `@all`.
    All,
    /// `@cp*`.
    Masters,
    /// `@cp1`: the first master.
    First,
    /// `@cpN`: all masters except the first.
    OtherMasters,
    /// `@w*`.
    Workers,
    /// `@j*`: all nodes except the first.
    Joined,
    /// `@etcd*`: the hosts of the members of etcd.
    Etcd,
    /// `ip=A,B`.
    Addresses(Vec<String>),
    /// `name=A,B` or `n=A,B`, case-insensitive.
    Names(Vec<String>),
    /// One name or address.
    One(String),
}

/// A parsed selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The name of the cluster.
    pub cluster: String,
    /// The hosts to select.
    pub pick: Pick,
    text: String,
}

const KEYWORDS: &str = "@all, @cp*, @cp1, @cpn, @w*, @j*, @etcd*";

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// Refuses a selector without a cluster or with an unknown key.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let (cluster, sel) = match text.split_once('@') {
            Some((cluster, sel)) if !cluster.is_empty() && !sel.is_empty() => (cluster, sel),
            _ => {
                let error =
                    EngineError::refused(format!("selector format error: {text:?} is not CLUSTER@SEL"));
                return Err(error.remedy(EngineRemedy::UseSelector));
            }
        };
        Ok(Self { cluster: cluster.to_owned(), pick: pick(sel)?, text: text.to_owned() })
    }

    /// The selected hosts in the order of the cluster.
    ///
    /// # Errors
    /// Refuses when the selector, or a value of its list, matches no host. The error lists the hosts.
    pub fn choose(&self, members: &[Member]) -> Result<Vec<Member>, EngineError> {
        let unmatched = self.unmatched(members);
        if !unmatched.is_empty() {
            return Err(self.no_match(members, &unmatched.join("; ")));
        }
        let etcd_role = etcd_role(members);
        let chosen: Vec<_> = members
            .iter()
            .enumerate()
            .filter(|(i, m)| self.pick.matches(*i, m, &etcd_role))
            .map(|(_, m)| m.clone())
            .collect();
        match (&self.pick, chosen.is_empty()) {
            (Pick::One(word), true) => {
                let title = format!(
                    "Invalid node selector \"@{word}\". Use one of [{KEYWORDS}] or a node's name or address"
                );
                Err(self.no_match(members, &title))
            }
            (_, true) => {
                Err(self.no_match(members, &format!("Selector[{}] can not get some node", self.text)))
            }
            (_, false) => Ok(chosen),
        }
    }

    /// For every value of the list that matches no node, the reason.
    fn unmatched(&self, members: &[Member]) -> Vec<String> {
        let (Pick::Addresses(values) | Pick::Names(values)) = &self.pick else { return Vec::new() };
        let is_unmatched =
            |value: &&String| !members.iter().any(|member| self.pick.value_matches(value, member));
        let why = |value: &String| match members.iter().find(|member| member.is(value)) {
            Some(member) if member.is_at(value) => {
                format!("{value} is the address of {}; name= takes names", member.name)
            }
            Some(member) => format!("{value} is the name of {}; ip= takes addresses", member.address),
            None => format!("{} has no node {value}", self.cluster),
        };
        values.iter().filter(is_unmatched).map(why).collect()
    }

    fn no_match(&self, members: &[Member], title: &str) -> EngineError {
        let names = |role: &HostRole| {
            let names: Vec<_> = members.iter().filter(|m| m.role == *role).map(|m| m.name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(" ") }
        };
        let error = EngineError::refused(title)
            .row("masters", names(&HostRole::Master))
            .row("workers", names(&HostRole::Worker));
        match etcd_role(members) {
            HostRole::Etcd => error.row("etcd", names(&HostRole::Etcd)),
            _ => error,
        }
    }
}

fn pick(sel: &str) -> Result<Pick, EngineError> {
    if let Some((key, values)) = sel.split_once('=') {
        let values: Vec<_> = values.split(',').filter(|value| !value.is_empty()).map(str::to_owned).collect();
        return match key {
            "ip" if !values.is_empty() => Ok(Pick::Addresses(values)),
            "name" | "n" if !values.is_empty() => Ok(Pick::Names(values)),
            _ => Err(EngineError::refused(format!(
                "Invalid node selector \"{sel}\". Use one of [ip=ipv4, name=hostname]"
            ))),
        };
    }
    Ok(match sel {
        "all" => Pick::All,
        "cp*" => Pick::Masters,
        "cp1" => Pick::First,
        "cpN" | "cpn" => Pick::OtherMasters,
        "w*" => Pick::Workers,
        "j*" => Pick::Joined,
        "etcd*" => Pick::Etcd,
        word => Pick::One(word.to_owned()),
    })
}

/// The role of the hosts of the members of etcd.
fn etcd_role(members: &[Member]) -> HostRole {
    if members.iter().any(|member| member.role == HostRole::Etcd) { HostRole::Etcd } else { HostRole::Master }
}

impl Member {
    fn is(&self, word: &str) -> bool {
        self.is_named(word) || self.is_at(word)
    }

    fn is_named(&self, word: &str) -> bool {
        self.name.eq_ignore_ascii_case(word)
    }

    fn is_at(&self, word: &str) -> bool {
        self.address.to_string() == word
    }
}

impl Pick {
    fn matches(&self, index: usize, member: &Member, etcd_role: &HostRole) -> bool {
        match self {
            Self::All => true,
            Self::Masters => member.role.is_master(),
            Self::First => index == 0,
            Self::OtherMasters => member.role.is_master() && index > 0,
            Self::Workers => member.role == HostRole::Worker,
            Self::Joined => member.role.runs_node() && index > 0,
            Self::Etcd => member.role == *etcd_role,
            Self::Addresses(list) | Self::Names(list) => {
                list.iter().any(|value| self.value_matches(value, member))
            }
            Self::One(word) => member.is(word),
        }
    }

    /// Whether a value of the list matches this node.
    fn value_matches(&self, value: &str, member: &Member) -> bool {
        match self {
            Self::Addresses(_) => member.is_at(value),
            Self::Names(_) => member.is_named(value),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(i: u8, role: HostRole) -> Member {
        Member { name: format!("n{i}"), address: Ipv4Addr::new(10, 0, 0, i), role }
    }

    fn members() -> Vec<Member> {
        let nodes = [(1, true), (2, true), (3, false), (4, false)];
        nodes.into_iter().map(|(i, master)| member(i, HostRole::of(master))).collect()
    }

    fn chosen_of(text: &str, members: &[Member]) -> String {
        let chosen = Selector::parse(text).unwrap().choose(members).unwrap();
        chosen.iter().map(|m| m.name.clone()).collect::<Vec<_>>().join(" ")
    }

    fn chosen(text: &str) -> String {
        chosen_of(text, &members())
    }

    #[test]
    fn picks_by_role_and_order() {
        for (text, names) in [
            ("t@all", "n1 n2 n3 n4"),
            ("t@cp*", "n1 n2"),
            ("t@cp1", "n1"),
            ("t@cpN", "n2"),
            ("t@cpn", "n2"),
            ("t@w*", "n3 n4"),
            ("t@j*", "n2 n3 n4"),
            ("t@etcd*", "n1 n2"),
        ] {
            assert_eq!(chosen(text), names, "{text}");
        }
    }

    #[test]
    fn hosts_of_etcd_are_no_nodes() {
        let mut members = members();
        members.extend([member(5, HostRole::Etcd), member(6, HostRole::Etcd)]);
        for (text, names) in [
            ("t@all", "n1 n2 n3 n4 n5 n6"),
            ("t@cp*", "n1 n2"),
            ("t@w*", "n3 n4"),
            ("t@j*", "n2 n3 n4"),
            ("t@etcd*", "n5 n6"),
            ("t@n5", "n5"),
            ("t@ip=10.0.0.6,10.0.0.1", "n1 n6"),
        ] {
            assert_eq!(chosen_of(text, &members), names, "{text}");
        }
        let error = Selector::parse("t@n9").unwrap().choose(&members).unwrap_err();
        assert!(error.rows.contains(&("etcd".to_owned(), "n5 n6".to_owned())), "{error}");
    }

    #[test]
    fn picks_by_name_in_any_case_and_by_address() {
        for (text, names) in [
            ("t@name=n1,n3", "n1 n3"),
            ("t@n=N2", "n2"),
            ("t@ip=10.0.0.4,10.0.0.1", "n1 n4"),
            ("t@n3", "n3"),
            ("t@10.0.0.2", "n2"),
        ] {
            assert_eq!(chosen(text), names, "{text}");
        }
    }

    #[test]
    fn refuses_a_selector_without_a_cluster() {
        for text in ["all", "@all", "t@", ""] {
            assert!(Selector::parse(text).unwrap_err().title.starts_with("selector format error"), "{text}");
        }
        let unknown = Selector::parse("t@foo=bar").unwrap_err();
        assert!(unknown.title.contains("Use one of [ip=ipv4, name=hostname]"), "{}", unknown.title);
    }

    #[test]
    fn no_match_is_an_error() {
        let refuse = |text: &str| Selector::parse(text).unwrap().choose(&members()).unwrap_err();
        assert!(refuse("t@bad").title.starts_with("Invalid node selector \"@bad\". Use one of ["));
        assert!(refuse("t@name=n1,n9").title.contains("t has no node n9"));
        let only_master = vec![members().remove(0)];
        let error = Selector::parse("t@w*").unwrap().choose(&only_master).unwrap_err();
        assert_eq!(error.title, "Selector[t@w*] can not get some node");
        assert_eq!(error.category, crate::error::ErrorCategory::Refused);
    }

    #[test]
    fn every_listed_value_must_match_a_node_by_its_key() {
        for (text, title) in [
            ("t@name=n1,10.0.0.2", "10.0.0.2 is the address of n2; name= takes names"),
            ("t@n=10.0.0.1", "10.0.0.1 is the address of n1; name= takes names"),
            ("t@ip=10.0.0.1,N2", "N2 is the name of 10.0.0.2; ip= takes addresses"),
            ("t@ip=10.0.0.1,10.0.0.9", "t has no node 10.0.0.9"),
            ("t@name=n9,n1,n8", "t has no node n9; t has no node n8"),
        ] {
            let error = Selector::parse(text).unwrap().choose(&members()).unwrap_err();
            assert_eq!(
                (error.title.as_str(), error.category),
                (title, crate::error::ErrorCategory::Refused),
                "{text}"
            );
            assert_eq!(error.rows[0].1, "n1 n2", "{text}: the error lists the nodes");
        }
        // Both keys match the address of a node that has no name yet.
        let address = Ipv4Addr::new(10, 0, 0, 5);
        let nameless = Member { name: address.to_string(), address, role: HostRole::Master };
        for text in ["t@name=10.0.0.5", "t@ip=10.0.0.5"] {
            let chosen = Selector::parse(text).unwrap().choose(std::slice::from_ref(&nameless));
            assert_eq!(chosen.unwrap(), std::slice::from_ref(&nameless), "{text}");
        }
    }
}
