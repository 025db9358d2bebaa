//! The bytes of the parts that this session received, for other hosts. They are removed with the session.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeon_api::Digest;
use kubeon_wire::StepFailure;
use parking_lot::{Condvar, Mutex};

use crate::failure::Doing;
use crate::parts;
use crate::root::Root;

/// All parts of a session.
pub(super) struct Spool {
    folder: PathBuf,
    parts: Mutex<HashMap<String, Arc<Spooled>>>,
    begun: Condvar,
}

/// One part.
pub(super) struct Spooled {
    path: PathBuf,
    pub(super) size: u64,
    state: Mutex<Written>,
    changed: Condvar,
}

#[derive(Default)]
struct Written {
    bytes: u64,
    /// No more bytes come.
    ended: bool,
}

/// The writer of one part. Readers see its end when it is dropped.
pub struct SpooledPart {
    file: Option<File>,
    part: Arc<Spooled>,
}

/// Reads one part from its beginning while it arrives.
pub(super) struct SpoolReader {
    part: Arc<Spooled>,
    file: File,
    offset: u64,
}

impl Spool {
    /// An empty spool.
    ///
    /// # Errors
    /// If its folder cannot be created.
    pub(super) fn new(root: &Root) -> Result<Self, StepFailure> {
        let folder = parts::spool(root);
        parts::remove(&folder)?;
        fs::create_dir_all(&folder).doing("create the folder", &folder)?;
        Ok(Self { folder, parts: Mutex::default(), begun: Condvar::new() })
    }

    /// Removes all bytes. Clients that still read some see the end of the stream.
    pub(super) fn remove(&self) {
        // What stays is removed by the next session.
        let _ = parts::remove(&self.folder);
    }

    /// Begins a part, or begins it again. `None` if its file cannot be created: then it is not forwarded.
    pub(super) fn begin(&self, digest: &Digest, size: u64) -> Option<SpooledPart> {
        let path = self.folder.join(digest.as_str());
        // Readers of an earlier attempt keep its file.
        let _ = fs::remove_file(&path);
        let file = File::options().write(true).create_new(true).open(&path).ok()?;
        let part = Arc::new(Spooled { path, size, state: Mutex::default(), changed: Condvar::new() });
        self.parts.lock().insert(digest.to_string(), Arc::clone(&part));
        self.begun.notify_all();
        Some(SpooledPart { file: Some(file), part })
    }

    /// A part, as soon as it has begun; `None` if that takes longer than `limit`.
    pub(super) fn find(&self, digest: &str, limit: Duration) -> Option<Arc<Spooled>> {
        let end = Instant::now() + limit;
        let mut parts = self.parts.lock();
        loop {
            if let Some(part) = parts.get(digest) {
                return Some(Arc::clone(part));
            }
            if self.begun.wait_until(&mut parts, end).timed_out() {
                return None;
            }
        }
    }
}

impl SpooledPart {
    /// Adds bytes, and returns whether they were. If the disk refuses them, the part is not forwarded further, and no later ones
    /// are added.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(file) = &mut self.file else { return false };
        if file.write_all(bytes).is_err() {
            self.file = None;
            self.end();
            return false;
        }
        self.part.state.lock().bytes += bytes.len() as u64;
        self.part.changed.notify_all();
        true
    }

    /// A reader of what is added.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn reader(&self) -> io::Result<SpoolReader> {
        Ok(SpoolReader { file: self.part.open()?, part: Arc::clone(&self.part), offset: 0 })
    }

    fn end(&self) {
        self.part.state.lock().ended = true;
        self.part.changed.notify_all();
    }
}

impl Drop for SpooledPart {
    fn drop(&mut self) {
        self.end();
    }
}

impl Spooled {
    /// Opens the bytes.
    pub(super) fn open(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Fills `place` with bytes from `offset` on, as far as they arrived; waits for the first one, up to `limit` if there is one.
    /// Returns 0 when no more come.
    pub(super) fn read(
        &self,
        file: &File,
        place: &mut [u8],
        offset: u64,
        limit: Option<Duration>,
    ) -> io::Result<usize> {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut state = self.state.lock();
        while state.bytes <= offset && !state.ended {
            match end {
                Some(end) if self.changed.wait_until(&mut state, end).timed_out() => return Ok(0),
                Some(_) => {}
                None => self.changed.wait(&mut state),
            }
        }
        let available = usize::try_from(state.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        drop(state);
        let length = available.min(place.len());
        file.read_at(&mut place[..length], offset)
    }
}

impl Read for SpoolReader {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let read = self.part.read(&self.file, place, self.offset, None)?;
        self.offset += read as u64;
        Ok(read)
    }
}
