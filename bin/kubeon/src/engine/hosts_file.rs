//! The control machine's hosts file: one name for each cluster, with the addresses of all its masters, so
//! that kubectl reaches the cluster while any one of them is dead. Lines of others are never touched.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The hosts file, as far as it may be written.
#[derive(Debug, Clone)]
pub struct HostsFile {
    path: PathBuf,
}

impl HostsFile {
    /// The machine's own.
    pub fn of_this_machine() -> Self {
        Self { path: PathBuf::from("/etc/hosts") }
    }

    /// Gives `name` these addresses, in place of those it had. Writes only when something differs.
    ///
    /// # Errors
    /// When the file cannot be read or replaced; it is then as it was.
    pub fn set(&self, cluster: &str, name: &str, addresses: &[Ipv4Addr]) -> io::Result<()> {
        let mut block = String::new();
        for address in addresses {
            let _ = writeln!(block, "{address}\t{name}");
        }
        self.replace(cluster, &block)
    }

    /// Forgets what the cluster has in the file.
    ///
    /// # Errors
    /// When the file cannot be read or replaced; it is then as it was.
    pub fn forget(&self, cluster: &str) -> io::Result<()> {
        self.replace(cluster, "")
    }

    fn replace(&self, cluster: &str, block: &str) -> io::Result<()> {
        let old = std::fs::read_to_string(&self.path)?;
        let new = with_block(&old, cluster, block);
        if new == old { Ok(()) } else { write_beside(&self.path, &new) }
    }
}

fn with_block(text: &str, cluster: &str, block: &str) -> String {
    let (begin, end) = (format!("# kubeon {cluster} begin"), format!("# kubeon {cluster} end"));
    let mut kept = String::with_capacity(text.len() + block.len());
    let mut inside = false;
    // A block whose end is missing was not written by kubeon: then nothing is taken out.
    let whole = text.lines().any(|line| line == begin) && text.lines().any(|line| line == end);
    for line in text.lines() {
        inside |= whole && line == begin;
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
        inside &= line != end;
    }
    if !block.is_empty() {
        let _ = write!(kept, "{begin}\n{block}{end}\n");
    }
    kept
}

fn write_beside(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_file_name(format!(".hosts.kubeon-{}", std::process::id()));
    let written = std::fs::write(&beside, text)
        .and_then(|()| std::fs::set_permissions(&beside, std::fs::metadata(path)?.permissions()))
        .and_then(|()| std::fs::File::open(&beside)?.sync_all())
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // What could not be put in place is of no use; the error that matters is the first one.
        drop(std::fs::remove_file(&beside));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "127.0.0.1 localhost\n10.0.0.1 demo-not-ours\n";

    #[test]
    fn keeps_the_lines_of_others() {
        let folder = std::env::temp_dir().join(format!("kubeon-hosts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = HostsFile { path: folder.join("hosts") };
        std::fs::write(&file.path, OTHERS).unwrap();
        let addresses = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)];
        file.set("demo", "demo.api", &addresses).unwrap();
        file.set("demo2", "demo2.api", &addresses[..1]).unwrap();
        file.set("demo", "demo.api", &addresses[1..]).unwrap();
        let text = std::fs::read_to_string(&file.path).unwrap();
        assert!(text.starts_with(OTHERS), "{text}");
        assert_eq!(text.matches("demo.api").count(), 1, "{text}");
        assert_eq!(text.matches("demo2.api").count(), 1, "{text}");
        file.forget("demo").unwrap();
        file.forget("demo2").unwrap();
        assert_eq!(std::fs::read_to_string(&file.path).unwrap(), OTHERS);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn takes_nothing_out_when_a_block_has_no_end() {
        let text = "127.0.0.1 localhost\n# kubeon demo begin\n10.0.0.9 theirs\n";
        assert!(with_block(text, "demo", "").contains("10.0.0.9 theirs"));
    }
}
