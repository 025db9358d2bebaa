//! A single DNS query as defined by RFC 1035.

use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, SystemTime};

use kubeon_wire::StepFailure;

use crate::failure::{failed, plain};

const TIMEOUT: Duration = Duration::from_secs(3);
const HEADER: usize = 12;

/// A query for the `A` records of a name.
#[derive(Debug)]
pub(super) struct Query {
    name: String,
    body: Vec<u8>,
}

impl Query {
    /// A query for a fully qualified name, with or without the last dot.
    ///
    /// # Errors
    /// If the text is not a domain name.
    pub(super) fn new(name: &str) -> Result<Self, StepFailure> {
        let mut body = Vec::new();
        for label in name.trim_end_matches('.').split('.') {
            let length = u8::try_from(label.len()).unwrap_or(u8::MAX);
            if !(1..=63).contains(&length) || !label.is_ascii() {
                return Err(failed(format!("{name:?} is not a domain name")));
            }
            body.push(length);
            body.extend_from_slice(label.as_bytes());
        }
        // The root, type A, class IN.
        body.extend_from_slice(&[0, 0, 1, 0, 1]);
        Ok(Self { name: name.to_owned(), body })
    }

    /// The query for the name servers of the root zone, which every resolver answers and which needs no name of
    /// another party.
    pub(super) fn root() -> Self {
        // The root, type NS, class IN.
        Self { name: "the root zone".to_owned(), body: vec![0, 0, 2, 0, 1] }
    }

    /// Sends the query to a server and waits up to three seconds.
    ///
    /// # Errors
    /// A short text with the cause, if the server returns no address.
    pub(super) fn ask(&self, server: SocketAddrV4) -> Result<(), String> {
        let name = &self.name;
        match self.answer(server)? {
            Answer { code: 0, records: 1.. } => Ok(()),
            Answer { code: 0, .. } => Err(format!("DNS server {server} has no address for {name}")),
            Answer { code: 2, .. } => Err(format!("DNS server {server} failed to resolve {name}")),
            Answer { code: 3, .. } => Err(format!("DNS server {server} does not know {name}")),
            Answer { code, .. } => Err(format!("DNS server {server} answers {name} with code {code}")),
        }
    }

    /// Sends the query to a server. Any answer will do.
    ///
    /// # Errors
    /// A short text with the cause, if the server does not answer.
    pub(super) fn is_answered(&self, server: SocketAddrV4) -> Result<(), String> {
        self.answer(server).map(drop)
    }

    /// Asks the DNS server `cluster`, and the servers to which it forwards if it has no result.
    ///
    /// # Errors
    /// If one of `upstream` answers this host differently than `cluster` does.
    pub(super) fn ask_through(
        &self,
        cluster: SocketAddrV4,
        upstream: &[SocketAddrV4],
    ) -> Result<Upstream, String> {
        let answer = self.answer(cluster).map(|answer| answer.code);
        if matches!(answer, Ok(0 | 3)) {
            return Ok(Upstream::Answers);
        }
        let direct = upstream.iter().find_map(|server| Some((server, self.answer(*server).ok()?.code)));
        let Some((server, code)) = direct else { return Ok(Upstream::Silent) };
        // A server without a connection to the root servers fails, and CoreDNS passes its failure on.
        if answer == Ok(code) {
            return Ok(Upstream::Answers);
        }
        let how = match answer {
            Ok(code) => format!("DNS server {cluster} answers with code {code}"),
            Err(why) => why,
        };
        Err(format!("names outside of the cluster are not resolved: {how}, but {server} answers this host"))
    }

    fn answer(&self, server: SocketAddrV4) -> Result<Answer, String> {
        let number = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let id = (number.subsec_nanos() >> 8) as u16;
        // Recursion desired, one question.
        let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query[..2].copy_from_slice(&id.to_be_bytes());
        query.extend_from_slice(&self.body);
        let mut answer = [0; 1500];
        let length = ask(server, &query, &mut answer)
            .map_err(|error| format!("DNS server {server} does not answer: {}", plain(&error)))?;
        let answer = &answer[..length];
        if length < HEADER || answer[..2] != query[..2] {
            return Err(format!("DNS server {server} sent an answer to another query"));
        }
        Ok(Answer { code: answer[3] & 0x0f, records: u16::from_be_bytes([answer[6], answer[7]]) })
    }
}

/// The result code of an answer, and the number of its records.
struct Answer {
    code: u8,
    records: u16,
}

/// What became of a query for a name outside of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upstream {
    /// A server outside of the cluster answered.
    Answers,
    /// No server outside of the cluster answers this host.
    Silent,
}

/// The IPv4 name servers in the text of a resolver file.
pub(super) fn name_servers(text: &str) -> Vec<SocketAddrV4> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        if words.next()? != "nameserver" {
            return None;
        }
        Some(SocketAddrV4::new(words.next()?.parse().ok()?, 53))
    };
    text.lines().filter_map(server).collect()
}

fn ask(server: SocketAddrV4, query: &[u8], answer: &mut [u8]) -> std::io::Result<usize> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(server)?;
    socket.send(query)?;
    socket.recv(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address at which no server answers.
    fn silent() -> SocketAddrV4 {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, free)
    }

    #[test]
    fn a_name_outside_of_the_cluster_is_resolved_as_well_as_on_the_host() {
        let root = Query::root();
        assert_eq!(root.ask_through(server(0, 0), &[]), Ok(Upstream::Answers));
        assert_eq!(root.ask_through(server(3, 0), &[]), Ok(Upstream::Answers), "a private resolver");
        assert_eq!(
            root.ask_through(server(2, 0), &[server(2, 0)]),
            Ok(Upstream::Answers),
            "the same failure"
        );
        assert_eq!(root.ask_through(server(2, 0), &[silent()]), Ok(Upstream::Silent));
        let broken = root.ask_through(server(2, 0), &[silent(), server(0, 1)]).unwrap_err();
        assert!(broken.contains("answers with code 2, but 127.0.0.1"), "{broken}");
        let dead = root.ask_through(silent(), &[server(3, 0)]).unwrap_err();
        assert!(dead.contains("does not answer"), "{dead}");
    }

    #[test]
    fn reads_the_name_servers_of_a_file() {
        let found =
            name_servers("# x\nsearch a.b\nnameserver 10.0.0.2\nnameserver\tfe80::1\n nameserver 10.0.0.3 x");
        assert_eq!(found.iter().map(|at| at.ip().to_string()).collect::<Vec<_>>(), ["10.0.0.2", "10.0.0.3"]);
    }

    /// A server that answers one query with the given code and number of answers.
    fn server(code: u8, count: u8) -> SocketAddrV4 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut question = [0; 512];
            let (length, asker) = socket.recv_from(&mut question).unwrap();
            question[2] = 0x80;
            question[3] = code;
            question[7] = count;
            socket.send_to(&question[..length], asker).unwrap();
        });
        match address {
            std::net::SocketAddr::V4(address) => address,
            std::net::SocketAddr::V6(_) => unreachable!(),
        }
    }

    #[test]
    fn requires_an_address_in_the_answer() {
        let question = Query::new("kubernetes.default.svc.cluster.local.").unwrap();
        assert_eq!(question.ask(server(0, 1)), Ok(()));
        assert!(question.ask(server(0, 0)).unwrap_err().contains("has no address"));
        assert!(question.ask(server(3, 0)).unwrap_err().contains("does not know"));
        assert!(question.ask(server(2, 0)).unwrap_err().contains("failed to resolve"));
    }

    #[test]
    fn encodes_the_query_as_in_rfc_1035() {
        assert_eq!(Query::new("a.bc").unwrap().body, b"\x01a\x02bc\x00\x00\x01\x00\x01");
        for bad in ["", "a..b", &"x".repeat(64)] {
            assert!(Query::new(bad).is_err(), "{bad}");
        }
    }
}
