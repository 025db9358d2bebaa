//! `kubeon-node serve-program`: serves the packed node program to other hosts of a run, which have no program of kubeon yet.
//!
//! A client sends the line `program`, and gets the bytes until the end of the stream. They are public, and the client compares
//! their digest.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use crate::client_threads::serve_clients;
use crate::input::Live;

/// The most clients at a time: the engine sends one, and another one when it gave up the first.
const MOST_CLIENTS: usize = 4;
/// The longest wait for a client.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest life of the program.
const LIFE: Duration = Duration::from_secs(300);
/// What a client sends.
const REQUEST: &[u8] = b"program\n";

/// Listens on a free port of the address, and serves the file in threads of its own. Returns the port. The file is removed.
///
/// # Errors
/// If the file cannot be read or removed, or the address is not one of this host.
pub fn begin(address: Ipv4Addr, file: &Path) -> io::Result<u16> {
    let packed = fs::read(file)?;
    fs::remove_file(file)?;
    let listener = TcpListener::bind((address, 0))?;
    let port = listener.local_addr()?.port();
    serve_clients(listener, MOST_CLIENTS, move |stream| {
        // The client sees another digest.
        let _ = serve(stream, &packed);
    })?;
    Ok(port)
}

/// Returns when the input has ended, at the latest after some minutes.
pub fn wait_for_end(input: impl Read + AsFd) {
    // Silence ends the program like the end of the input.
    let _ = io::copy(&mut Live::new(input, LIFE), &mut io::sink());
}

fn serve(mut client: TcpStream, packed: &[u8]) -> io::Result<()> {
    client.set_read_timeout(Some(IDLE_TIMEOUT))?;
    client.set_write_timeout(Some(IDLE_TIMEOUT))?;
    let mut asked = [0; REQUEST.len()];
    client.read_exact(&mut asked)?;
    if asked == REQUEST { client.write_all(packed) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    /// What a client gets for a request.
    fn ask(port: u16, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let mut got = Vec::new();
        // The server may have closed the connection before it read everything.
        let _ = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = stream.read_to_end(&mut got);
        got
    }

    #[test]
    fn clients_get_the_bytes_of_a_file_that_has_no_name_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeon-node.gz");
        let packed: Vec<u8> = (0..1_000_000).map(|index| (index % 251) as u8).collect();
        fs::write(&file, &packed).unwrap();
        let port = begin(Ipv4Addr::LOCALHOST, &file).unwrap();
        assert!(!file.exists());
        for _ in 0..3 {
            assert!(ask(port, REQUEST) == packed);
            assert_eq!(ask(port, b""), b"", "it only connects");
            assert_eq!(ask(port, b"GET / HTTP/1.1\r\n\r\n"), b"");
        }
        assert!(begin(Ipv4Addr::LOCALHOST, &file).is_err(), "the file is missing");
    }

    #[test]
    fn it_ends_with_its_input() {
        let (input, output) = io::pipe().unwrap();
        drop(output);
        wait_for_end(input);
    }
}
