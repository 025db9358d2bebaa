//! Standard input: lines of JSON with raw bytes of parts between them.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The longest accepted line: no step is larger.
const LINE_LIMIT: usize = 64 << 20;

/// A stream that fails after a time without data: a peer that lost its power or its network does not close
/// the connection. Only the time spent in a read counts.
#[derive(Debug)]
pub struct Live<R> {
    stream: R,
    silence: Duration,
}

impl<R: Read + AsFd> Live<R> {
    /// Reads from the stream and waits at most `silence` for the next data.
    pub fn new(stream: R, silence: Duration) -> Self {
        Self { stream, silence }
    }
}

impl<R: Read + AsFd> Read for Live<R> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        if is_ready(&self.stream, self.silence)? {
            return self.stream.read(place);
        }
        let text = format!("no data received for {} s", self.silence.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

/// Whether the stream has data or ended within the timeout.
fn is_ready(stream: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    let end = Instant::now() + timeout;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads lines and raw bytes from one stream without losing any.
#[derive(Debug)]
pub struct Input<R> {
    stream: R,
    broke: bool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Input<R> {
    /// Reads from the stream.
    pub fn new(stream: R) -> Self {
        Self { stream, broke: false, buffer: vec![0; 64 << 10], start: 0, end: 0 }
    }

    /// Whether the stream failed or sent no data for too long; `false` after a regular end.
    #[must_use]
    pub fn broke(&self) -> bool {
        self.broke
    }

    /// The next line without its newline; `None` at the end of the stream. A last line without a newline is
    /// not returned, because it may be incomplete.
    ///
    /// # Errors
    /// If the stream fails, or a line is longer than 64 MiB.
    pub fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let held = &self.buffer[self.start..self.end];
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&held[..end]);
                self.start += end + 1;
                return Ok(Some(line));
            }
            line.extend_from_slice(held);
            if line.len() > LINE_LIMIT {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB"));
            }
            self.start = 0;
            self.end = read(&mut self.stream, &mut self.buffer).inspect_err(|_| self.broke = true)?;
            if self.end == 0 {
                return Ok(None);
            }
        }
    }

    /// Fills `place` with raw bytes. Returns how many arrived before the end of the stream.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn bytes(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let held = &self.buffer[self.start..self.end];
        let mut filled = held.len().min(place.len());
        place[..filled].copy_from_slice(&held[..filled]);
        self.start += filled;
        while filled < place.len() {
            let read = read(&mut self.stream, &mut place[filled..]);
            match read.inspect_err(|_| self.broke = true)? {
                0 => break,
                more => filled += more,
            }
        }
        Ok(filled)
    }
}

fn read(stream: &mut impl Read, place: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(place) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Returns one byte at a time, like a slow network.
    struct Drip(&'static [u8]);

    impl Read for Drip {
        fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            place[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn check(stream: impl Read) {
        let mut input = Input::new(stream);
        assert_eq!(input.line().unwrap().unwrap(), b"one");
        let mut raw = [0; 5];
        assert_eq!(input.bytes(&mut raw).unwrap(), 5);
        assert_eq!(&raw, b"a\nb\n\0");
        assert_eq!(input.line().unwrap().unwrap(), b"two");
        assert_eq!(input.line().unwrap().unwrap(), b"");
        assert_eq!(input.line().unwrap(), None, "a line without a newline is incomplete");
    }

    #[test]
    fn separates_lines_from_raw_bytes() {
        let stream: &[u8] = b"one\na\nb\n\0two\n\ncut";
        check(stream);
        check(Drip(stream));
    }

    #[test]
    fn returns_how_many_bytes_arrived_before_the_end() {
        let mut input = Input::new(&b"x\nabc"[..]);
        input.line().unwrap();
        assert_eq!(input.bytes(&mut [0; 9]).unwrap(), 3);
        assert!(!input.broke(), "a regular end");
    }

    #[test]
    fn silence_fails_a_stream_after_the_earlier_lines_were_read() {
        let (stream, mut peer) = io::pipe().unwrap();
        peer.write_all(b"one\ncut").unwrap();
        let mut input = Input::new(Live::new(stream, Duration::from_millis(50)));
        assert_eq!(input.line().unwrap().unwrap(), b"one");
        assert_eq!(input.line().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(input.broke());
        drop(peer);
    }
}
