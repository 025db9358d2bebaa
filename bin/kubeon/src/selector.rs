//! Which nodes are meant: `CLUSTER@SEL`.

use std::net::Ipv4Addr;

use crate::stop::Stop;

/// A node of a cluster, as selectors see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name as a node; its address where it has none yet.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Whether it is a master.
    pub master: bool,
}

/// What comes after the `@`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// `@all`.
    All,
    /// `@cp*`.
    Masters,
    /// `@cp1`: the first master.
    First,
    /// `@cpN`: the masters but the first.
    OtherMasters,
    /// `@w*`.
    Workers,
    /// `@j*`: every node but the first.
    Joined,
    /// `ip=A,B`.
    Addresses(Vec<String>),
    /// `name=A,B` or `n=A,B`, in any case.
    Names(Vec<String>),
    /// One name or address.
    One(String),
}

/// A selector, cut at its `@`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The cluster's name.
    pub cluster: String,
    /// Which of its nodes.
    pub pick: Pick,
    text: String,
}

const KEYWORDS: &str = "@all, @cp*, @cp1, @cpn, @w*, @j*";

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// Refuses what has no cluster or an unknown key.
    pub fn parse(text: &str) -> Result<Self, Stop> {
        let (cluster, sel) = match text.split_once('@') {
            Some((cluster, sel)) if !cluster.is_empty() && !sel.is_empty() => (cluster, sel),
            _ => {
                let stop = Stop::refused(format!("selector format error: {text:?} is not CLUSTER@SEL"));
                return Err(stop.hint("try: kubeon exec CLUSTER@all uptime"));
            }
        };
        Ok(Self { cluster: cluster.to_owned(), pick: pick(sel)?, text: text.to_owned() })
    }

    /// The nodes that are meant, in the cluster's order.
    ///
    /// # Errors
    /// Refuses when no node is meant, naming those that are there, or when a named one is not there.
    pub fn choose(&self, members: &[Member]) -> Result<Vec<Member>, Stop> {
        if let Pick::Names(names) | Pick::Addresses(names) = &self.pick {
            let missing: Vec<_> = names.iter().filter(|name| !members.iter().any(|m| m.is(name))).collect();
            if let Some(name) = missing.first() {
                return Err(self.nothing(members, &format!("{} has no node {name}", self.cluster)));
            }
        }
        let chosen: Vec<_> = members
            .iter()
            .enumerate()
            .filter(|(i, m)| self.pick.meets(*i, m))
            .map(|(_, m)| m.clone())
            .collect();
        match (&self.pick, chosen.is_empty()) {
            (Pick::One(word), true) => {
                let title = format!(
                    "Invalid node selector \"@{word}\". Use one of [{KEYWORDS}] or a node's name or address"
                );
                Err(self.nothing(members, &title))
            }
            (_, true) => {
                Err(self.nothing(members, &format!("Selector[{}] can not get some node", self.text)))
            }
            (_, false) => Ok(chosen),
        }
    }

    fn nothing(&self, members: &[Member], title: &str) -> Stop {
        let names = |master: bool| {
            let names: Vec<_> =
                members.iter().filter(|m| m.master == master).map(|m| m.name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(" ") }
        };
        Stop::refused(title).row("masters", names(true)).row("workers", names(false))
    }
}

fn pick(sel: &str) -> Result<Pick, Stop> {
    if let Some((key, values)) = sel.split_once('=') {
        let values: Vec<_> = values.split(',').filter(|value| !value.is_empty()).map(str::to_owned).collect();
        return match key {
            "ip" if !values.is_empty() => Ok(Pick::Addresses(values)),
            "name" | "n" if !values.is_empty() => Ok(Pick::Names(values)),
            _ => Err(Stop::refused(format!(
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
        word => Pick::One(word.to_owned()),
    })
}

impl Member {
    fn is(&self, word: &str) -> bool {
        self.name.eq_ignore_ascii_case(word) || self.address.to_string() == word
    }
}

impl Pick {
    fn meets(&self, index: usize, member: &Member) -> bool {
        match self {
            Self::All => true,
            Self::Masters => member.master,
            Self::First => index == 0,
            Self::OtherMasters => member.master && index > 0,
            Self::Workers => !member.master,
            Self::Joined => index > 0,
            Self::Addresses(list) => list.iter().any(|address| *address == member.address.to_string()),
            Self::Names(list) => list.iter().any(|name| name.eq_ignore_ascii_case(&member.name)),
            Self::One(word) => member.is(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Vec<Member> {
        let member =
            |i: u8, master| Member { name: format!("n{i}"), address: Ipv4Addr::new(10, 0, 0, i), master };
        vec![member(1, true), member(2, true), member(3, false), member(4, false)]
    }

    fn chosen(text: &str) -> String {
        let chosen = Selector::parse(text).unwrap().choose(&members()).unwrap();
        chosen.iter().map(|m| m.name.clone()).collect::<Vec<_>>().join(" ")
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
        ] {
            assert_eq!(chosen(text), names, "{text}");
        }
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
    fn refuses_what_has_no_cluster() {
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
        let stop = Selector::parse("t@w*").unwrap().choose(&only_master).unwrap_err();
        assert_eq!(stop.title, "Selector[t@w*] can not get some node");
        assert_eq!(stop.code, crate::stop::Code::Refused);
    }
}
