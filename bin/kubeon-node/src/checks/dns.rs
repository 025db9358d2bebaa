//! A single DNS query as defined by RFC 1035.

use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, SystemTime};

use kubeon_wire::StepFailure;

use crate::failure::{failed, plain};

const TIMEOUT: Duration = Duration::from_secs(1);
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

    /// Sends the query to a server and waits up to one second.
    ///
    /// # Errors
    /// A short text with the cause, if the server returns no address.
    pub(super) fn ask(&self, server: SocketAddrV4) -> Result<(), String> {
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
        let count = u16::from_be_bytes([answer[6], answer[7]]);
        match answer[3] & 0x0f {
            0 if count > 0 => Ok(()),
            0 => Err(format!("DNS server {server} has no address for {}", self.name)),
            2 => Err(format!("DNS server {server} failed to resolve {}", self.name)),
            3 => Err(format!("DNS server {server} does not know {}", self.name)),
            code => Err(format!("DNS server {server} answers {} with code {code}", self.name)),
        }
    }
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
