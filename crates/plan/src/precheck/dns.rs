//! Check of the name servers: pods resolve names outside of the cluster with the name servers of their host.

use kubeon_api::Remedy;

use super::rule::{Subject, Verdict};
use crate::resolver::{Resolver, SYSTEM_FILE, looping};

/// The host knows a name server that pods reach, the server answers, and the host resolves its own name.
///
/// A host without any name server is a warning, because a host without a connection to other networks may
/// have none. On a host of the cluster nothing is an error, so that the cluster can still be changed.
pub(super) fn dns(subject: &Subject<'_>) -> Verdict {
    let (facts, settings) = (subject.facts, &subject.intent.spec.settings);
    let resolver = Resolver::new(facts, subject.spec.cluster_address().ip(), settings.service_cidr);
    let verdict =
        Verdict::good(found(subject, &resolver), "a name server that pods reach, and its own name resolved");
    let known = facts.name_servers.values().flatten().next().is_some();
    let unusable = (known && resolver.upstream.is_empty()).then(|| loops_only(subject));
    let silent = silent(subject, &resolver);
    let all_silent = (!silent.is_empty() && silent.len() == resolver.upstream.len()).then(|| {
        format!(
            "gets no answer from its name servers {}: pods cannot resolve names outside of the cluster",
            silent.join(", ")
        )
    });
    let some_silent =
        (!silent.is_empty()).then(|| format!("gets no answer from its name server {}", silent.join(", ")));
    let none = (!facts.name_servers.is_empty() && !known).then(|| {
        format!("has no name server in {SYSTEM_FILE}: pods cannot resolve names outside of the cluster")
    });
    let itself = (facts.resolves_itself == Some(false))
        .then(|| format!("does not resolve its own name {}", facts.hostname));
    let wrong = unusable.or(all_silent);
    let verdict = match (wrong, facts.claim.is_none()) {
        (Some(message), true) => verdict.error(Some(message)).remedy(Remedy::Ignore("dns".to_owned())),
        (message, _) => verdict.warning(message),
    };
    verdict.warning(none).warning(some_silent).warning(itself)
}

/// What was checked: the servers that pods get, their file, and the servers that they do not get.
fn found(subject: &Subject<'_>, resolver: &Resolver<'_>) -> String {
    let facts = subject.facts;
    if facts.name_servers.is_empty() {
        return String::new();
    }
    let server = |server: &&str| match facts.name_server_answers.get(*server) {
        Some(true) => format!("{server} answers"),
        Some(false) => format!("{server} does not answer"),
        None => (*server).to_owned(),
    };
    let mut found: Vec<String> = resolver.upstream.iter().map(server).collect();
    if found.is_empty() {
        found.push("none".to_owned());
    }
    let mut details = Vec::new();
    if resolver.differs_from_system() && !resolver.upstream.is_empty() {
        details.push(format!("pods get them from {}", resolver.path()));
    }
    details.extend(loops(subject));
    let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) };
    format!("{}{details}", found.join(", "))
}

/// The servers that lead back to the host or to CoreDNS.
fn loops(subject: &Subject<'_>) -> Option<String> {
    let by_file = looping(subject.facts, subject.intent.spec.settings.service_cidr);
    let named: Vec<String> =
        by_file.into_iter().map(|(file, servers)| format!("{file} names {}", servers.join(", "))).collect();
    (!named.is_empty()).then(|| format!("{}, which pods cannot use", named.join("; ")))
}

fn loops_only(subject: &Subject<'_>) -> String {
    format!(
        "knows no name server that pods reach: {}; add one to {SYSTEM_FILE} (nameserver ADDRESS), or use \
         systemd-resolved",
        loops(subject).unwrap_or_default()
    )
}

/// The upstream servers that were asked and did not answer.
fn silent<'a>(subject: &Subject<'_>, resolver: &Resolver<'a>) -> Vec<&'a str> {
    let answers = &subject.facts.name_server_answers;
    resolver.upstream.iter().copied().filter(|server| answers.get(*server) == Some(&false)).collect()
}
