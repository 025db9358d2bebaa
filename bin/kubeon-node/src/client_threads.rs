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
