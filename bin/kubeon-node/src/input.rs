//! Standard input: lines of JSON, and now and then raw bytes between them.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A longer line is refused: no step is that large.
const LINE_LIMIT: usize = 64 << 20;

/// A stream that counts as broken once nothing came for too long: a peer that lost its power or its network
/// does not say that it is gone. Time in which nobody reads does not count.
#[derive(Debug)]
pub struct Live<R> {
    stream: R,
    silence: Duration,
}

impl<R: Read + AsFd> Live<R> {
    /// Reads from the stream and waits no longer than `silence` for what comes next.
    pub fn new(stream: R, silence: Duration) -> Self {
        Self { stream, silence }
    }
}

impl<R: Read + AsFd> Read for Live<R> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        if is_ready(&self.stream, self.silence)? {
            return self.stream.read(place);
        }
        let words = format!("nothing came for {} s", self.silence.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, words))
    }
}

/// Whether there is something to read, or the stream ended, within the time.
fn is_ready(stream: &impl AsFd, patience: Duration) -> io::Result<bool> {
    let end = Instant::now() + patience;
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

    /// Whether the stream broke or fell silent; `false` where it came to its end.
    #[must_use]
    pub fn broke(&self) -> bool {
        self.broke
    }

    /// The next line without its end; `None` at the end of the stream. A last line that is cut off by the
    /// end of the stream is not given: it is not known to be whole.
    ///
    /// # Errors
    /// When the stream breaks, or a line is longer than 64 MiB.
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

    /// Fills `place` with raw bytes; tells how many came before the end of the stream.
    ///
    /// # Errors
    /// When the stream breaks.
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

    /// Gives one byte at a time, as a slow network may.
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
        assert_eq!(input.line().unwrap(), None, "a line without an end is not whole");
    }

    #[test]
    fn keeps_lines_and_raw_bytes_apart() {
        let stream: &[u8] = b"one\na\nb\n\0two\n\ncut";
        check(stream);
        check(Drip(stream));
    }

    #[test]
    fn tells_how_many_bytes_came_before_the_end() {
        let mut input = Input::new(&b"x\nabc"[..]);
        input.line().unwrap();
        assert_eq!(input.bytes(&mut [0; 9]).unwrap(), 3);
        assert!(!input.broke(), "it came to its end");
    }

    #[test]
    fn silence_breaks_a_stream_and_what_came_before_is_read() {
        let (stream, mut peer) = io::pipe().unwrap();
        peer.write_all(b"one\ncut").unwrap();
        let mut input = Input::new(Live::new(stream, Duration::from_millis(50)));
        assert_eq!(input.line().unwrap().unwrap(), b"one");
        assert_eq!(input.line().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(input.broke());
        drop(peer);
    }
}
