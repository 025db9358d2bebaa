//! Copies files and folders to a host as one stream. The host checks them and moves them into place.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use crate::command::{CommandInput, Exit, Stream};
use crate::failure::{category_of, failure, last_lines};
use crate::pool::SshHosts;
use crate::remote::CHUNK;

/// Unpacks beside the destination `$1`, compares every checksum and moves the result into place. `$2` is the source's
/// name, for a destination that is a folder; `$3` is `file` or `folder`. Prints the final path.
const RECEIVE: &str = "set -eu; dest=$1
case $dest in /*) ;; *) dest=./$dest ;; esac
case $dest in */) mkdir -p \"$dest\" ;; esac
[ ! -d \"$dest\" ] || dest=${dest%/}/$2
if [ -e \"$dest\" ]; then
  [ \"$3\" = folder ] || [ ! -d \"$dest\" ] || { echo \"$dest is a folder\" >&2; exit 1; }
  [ \"$3\" = file ] || [ -d \"$dest\" ] || { echo \"$dest is not a folder\" >&2; exit 1; }
fi
parent=$(dirname -- \"$dest\"); mkdir -p \"$parent\"
t=$(mktemp -d \"$parent/.kubeon-copy.XXXXXX\"); trap 'rm -rf \"$t\"' EXIT; trap 'exit 1' HUP INT TERM
tar -x -p -o -f - -C \"$t\"
[ -f \"$t/sums\" ] || { echo 'the stream was cut off' >&2; exit 65; }
[ ! -s \"$t/sums\" ] || (cd \"$t\" && sha256sum -c sums >/dev/null) || exit 65
if [ -d \"$dest\" ]; then (cd \"$t/data\" && tar -c -f - .) | tar -x -p -o -f - -C \"$dest\"
else mv -f \"$t/data\" \"$dest\"; fi
printf '%s\\n' \"$dest\"";

/// Exit code of [`RECEIVE`] when the received bytes have another digest.
const WRONG_DIGEST: u32 = 65;

/// Time limit without progress; at the end of a large copy the host computes checksums for a while.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A file or folder for [`SshHosts::copy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// The local file or folder.
    pub source: PathBuf,
    /// The destination on the host: an existing folder, or a path with `/` at the end, receives the source under its own
    /// name; any other path is its new name. Missing parents are created. A folder is merged into an existing one.
    pub destination: String,
}

/// The result of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The path on the host.
    pub path: String,
    /// Number of files.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl SshHosts {
    /// Copies a file or folder as root, with modes and symbolic links. `on_progress` gets the bytes done and the total. The
    /// destination changes only when the SHA-256 of every file is equal.
    ///
    /// # Errors
    /// When the source cannot be read or contains anything other than files, folders and links; when the host cannot be
    /// reached or cannot store it; when a checksum differs.
    pub async fn copy(
        &self,
        host: HostAddress,
        copy: &Copy,
        on_progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<Copied, StepFailure> {
        let source = copy.source.clone();
        let unreadable = |error: io::Error| {
            failure(Category::Failed, format!("cannot read {}: {error}", copy.source.display()))
        };
        let listed = tokio::task::spawn_blocking(move || CopySource::list(&source)).await;
        let listed = listed.map_err(io::Error::other).and_then(|listed| listed).map_err(unreadable)?;
        let (name, kind, files, total) = (listed.name.clone(), listed.kind(), listed.files(), listed.bytes());

        let connection = self.0.connection(host).await?;
        let rights = connection.rights().await?;
        let args = [copy.destination.as_str(), name.as_str(), kind];
        let mut remote = connection.start(&rights, RECEIVE, &args).await?;

        let done = Arc::new(AtomicU64::new(0));
        let reader = listed.stream(Arc::clone(&done));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let running = async {
            let mut on_output = |stream, bytes: &[u8]| {
                let buffer = if stream == Stream::Out { &mut out } else { &mut err };
                if buffer.len() < 64 * 1024 {
                    buffer.extend_from_slice(bytes);
                }
            };
            remote.run_to_end(&connection, CommandInput::Reader(Box::pin(reader)), &mut on_output).await
        };
        let exit = wait_with_progress(running, &done, total, on_progress, host).await?;
        let stderr_text = String::from_utf8_lossy(&err).into_owned();
        if exit.success() {
            let path = String::from_utf8_lossy(&out).trim_end_matches('\n').to_owned();
            return Ok(Copied { path, files, bytes: total });
        }
        let log = last_lines(&stderr_text, 20);
        let why = log.last().cloned().unwrap_or_else(|| exit.to_string());
        let category =
            if exit == Exit::Code(WRONG_DIGEST) { Category::Corrupt } else { category_of(&stderr_text) };
        let cause = format!("cannot copy {} to {host}:{}: {why}", copy.source.display(), copy.destination);
        Err(StepFailure { log, ..failure(category, cause) })
    }
}

/// Waits for the end of the copy and reports progress. Fails after [`STALL_TIMEOUT`] without progress.
async fn wait_with_progress<T>(
    running: impl Future<Output = Result<T, StepFailure>>,
    done: &AtomicU64,
    total: u64,
    on_progress: &(dyn Fn(u64, u64) + Send + Sync),
    host: HostAddress,
) -> Result<T, StepFailure> {
    tokio::pin!(running);
    let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
    let (mut reported, mut last_progress) = (0, Instant::now());
    loop {
        let result = tokio::select! {
            result = &mut running => Some(result),
            _ = tick.tick() => None,
        };
        let now = done.load(Ordering::Relaxed);
        if now != reported {
            (reported, last_progress) = (now, Instant::now());
            on_progress(now, total);
        }
        if let Some(result) = result {
            return result;
        }
        if last_progress.elapsed() > STALL_TIMEOUT {
            let cause = format!("the copy to {host} made no progress for {} s", STALL_TIMEOUT.as_secs());
            return Err(failure(Category::Timeout, cause));
        }
    }
}

/// The source of a copy, listed before the first byte is sent.
struct CopySource {
    name: String,
    entries: Vec<Entry>,
}

struct Entry {
    path: PathBuf,
    /// Its path in the stream: `data`, `data/a/b`.
    inside: PathBuf,
    meta: Metadata,
}

impl CopySource {
    fn list(source: &Path) -> io::Result<Self> {
        let name = fs::canonicalize(source)?;
        let name = name.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| io::Error::other("its name is not UTF-8"))?.to_owned();
        let first = Entry { path: source.to_owned(), inside: "data".into(), meta: fs::metadata(source)? };
        let (mut entries, mut pending) = (Vec::new(), vec![first]);
        while let Some(entry) = pending.pop() {
            if entry.meta.is_dir() {
                let mut inner = fs::read_dir(&entry.path)?.collect::<io::Result<Vec<_>>>()?;
                inner.sort_by_key(fs::DirEntry::file_name);
                for found in inner.into_iter().rev() {
                    let (path, inside) = (found.path(), entry.inside.join(found.file_name()));
                    pending.push(Entry { meta: fs::symlink_metadata(&path)?, path, inside });
                }
            } else if !entry.meta.is_file() && !entry.meta.is_symlink() {
                let what = format!("{} is neither file, folder nor link", entry.path.display());
                return Err(io::Error::other(what));
            }
            entries.push(entry);
        }
        Ok(Self { name, entries })
    }

    fn kind(&self) -> &'static str {
        if self.entries.first().is_some_and(|entry| entry.meta.is_dir()) { "folder" } else { "file" }
    }

    fn files(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.meta.is_file()).map(|_| 1).sum()
    }

    fn bytes(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.meta.is_file()).map(|entry| entry.meta.len()).sum()
    }

    /// The stream. A thread produces it and stays at most a few pieces ahead of the reader.
    fn stream(self, done: Arc<AtomicU64>) -> Pieces {
        let (pieces, incoming) = mpsc::channel(4);
        tokio::task::spawn_blocking(move || {
            let mut out = Outgoing { pieces: pieces.clone(), piece: Vec::with_capacity(CHUNK) };
            let packed = self.pack(&mut out, &done).and_then(|()| out.flush());
            if let Err(error) = packed {
                // The receiver is closed when the copy has already failed.
                pieces.blocking_send(Err(error)).ok();
            }
        });
        Pieces { incoming, piece: Vec::new(), at: 0 }
    }

    /// Writes the tar stream: `data` with its contents, then `sums` in the format of `sha256sum -c`.
    fn pack(&self, out: &mut Outgoing, done: &AtomicU64) -> io::Result<()> {
        let mut tar = tar::Builder::new(out);
        let mut sums = String::new();
        for entry in &self.entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(entry.meta.mode() & 0o7777);
            header.set_mtime(u64::try_from(entry.meta.mtime()).unwrap_or(0));
            header.set_size(0);
            if entry.meta.is_symlink() {
                header.set_entry_type(tar::EntryType::Symlink);
                tar.append_link(&mut header, &entry.inside, fs::read_link(&entry.path)?)?;
            } else if entry.meta.is_dir() {
                header.set_entry_type(tar::EntryType::Directory);
                tar.append_data(&mut header, &entry.inside, io::empty())?;
            } else {
                header.set_size(entry.meta.len());
                let mut file = Summed::open(entry, done)?;
                tar.append_data(&mut header, &entry.inside, &mut file)?;
                sums.push_str(&sum_line(file.sum, &entry.inside)?);
            }
        }
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(sums.len() as u64);
        tar.append_data(&mut header, "sums", sums.as_bytes())?;
        tar.finish()
    }
}

fn sum_line(sum: Sha256, inside: &Path) -> io::Result<String> {
    let path = inside.to_str().ok_or_else(|| io::Error::other(format!("{inside:?} is not UTF-8")))?;
    let sum = hex::encode(sum.finalize());
    if path.contains(['\\', '\n']) {
        return Ok(format!("\\{sum}  {}\n", path.replace('\\', "\\\\").replace('\n', "\\n")));
    }
    Ok(format!("{sum}  {path}\n"))
}

/// Reads exactly as many bytes of a file as were listed, and computes their checksum.
struct Summed<'a> {
    file: File,
    path: &'a Path,
    left: u64,
    sum: Sha256,
    done: &'a AtomicU64,
}

impl<'a> Summed<'a> {
    fn open(entry: &'a Entry, done: &'a AtomicU64) -> io::Result<Self> {
        let file = File::open(&entry.path)?;
        Ok(Self { file, path: &entry.path, left: entry.meta.len(), sum: Sha256::new(), done })
    }
}

impl Read for Summed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.file.read(&mut buffer[..wanted])?;
        if read == 0 {
            let what = format!("{} became shorter while it was read", self.path.display());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        self.sum.update(&buffer[..read]);
        self.left -= read as u64;
        self.done.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Collects small writes into larger pieces.
struct Outgoing {
    pieces: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(CHUNK));
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the stream is no longer read");
        if piece.is_empty() { Ok(()) } else { self.pieces.blocking_send(Ok(piece)).map_err(|_| closed()) }
    }
}

/// The pieces as a stream of bytes.
struct Pieces {
    incoming: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.at == self.piece.len() {
            match ready!(self.incoming.poll_recv(context)) {
                Some(Ok(piece)) => (self.piece, self.at) = (piece, 0),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = buffer.remaining().min(self.piece.len() - self.at);
        buffer.put_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Poll::Ready(Ok(()))
    }
}
