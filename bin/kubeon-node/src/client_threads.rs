//! A listener whose clients are served in threads, a limited number at a time.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts clients in a thread of its own, and serves each in another one. While there are `most`, further ones are refused. It
/// ends with this program.
///
/// # Errors
/// If the thread cannot be started.
pub fn serve_clients(
    listener: TcpListener,
    most: usize,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) -> io::Result<()> {
    let (clients, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Such as no free file descriptor: a moment later there may be one.
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            if clients.fetch_add(1, Ordering::Relaxed) >= most {
                clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (serve, count) = (Arc::clone(&serve), Arc::clone(&clients));
            let served = thread::Builder::new().spawn(move || {
                serve(stream);
                count.fetch_sub(1, Ordering::Relaxed);
            });
            if served.is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new().spawn(accept).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    /// A client, if it is served: then it has received a byte.
    fn connect(server: SocketAddr) -> Option<TcpStream> {
        let mut client = TcpStream::connect(server).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.read_exact(&mut [0; 1]).ok().map(|()| client)
    }

    #[test]
    fn a_client_too_many_is_refused_until_another_one_has_gone() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        // A client is served until it closes its connection.
        let serve = |mut client: TcpStream| {
            let _ = client.write_all(b"x").and_then(|()| client.read_to_end(&mut Vec::new()));
        };
        serve_clients(listener, 4, serve).unwrap();
        let mut clients: Vec<TcpStream> = (0..4).map(|_| connect(server).unwrap()).collect();
        assert!(connect(server).is_none() && connect(server).is_none());
        drop(clients.pop());
        // Its thread ends a moment later.
        let again = (0..1000).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            connect(server)
        });
        assert!(again.is_some() && connect(server).is_none());
    }
}
