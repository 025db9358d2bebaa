//! The SHA-256 that the authors of a file publish.

use kubeon_api::Digest;
use serde_json::Value;

use super::error::PublishedError;
use super::server::Server;

/// Reads the document of sums and finds the digest of the file with that address.
pub(super) fn published(server: &Server, sums: &str, url: &str) -> Result<Digest, PublishedError> {
    let file = url.rsplit('/').next().unwrap_or(url);
    let text = server.document(sums, "*/*")?;
    let found = digest_in(&String::from_utf8_lossy(&text), file);
    found.ok_or_else(|| PublishedError::NoDigest { sums: sums.to_owned(), file: file.to_owned() })
}

/// The digest of a file: the only word of the document, in a line of `sha256sum`, or of an asset in a description of a release.
fn digest_in(document: &str, file: &str) -> Option<Digest> {
    if let Ok(release) = serde_json::from_str::<Value>(document) {
        let asset = release["assets"].as_array()?.iter().find(|asset| asset["name"] == file)?;
        return asset["digest"].as_str()?.parse().ok();
    }
    let mut words = document.split_whitespace();
    if let (Some(only), None) = (words.next(), words.next()) {
        return only.parse().ok();
    }
    document.lines().find_map(|line| {
        let (digest, name) = line.split_once(char::is_whitespace)?;
        let name = name.trim_start().trim_start_matches('*').trim_end();
        (name.rsplit('/').next() == Some(file)).then(|| digest.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_form_is_read() {
        let digest = "ab".repeat(32);
        let other = "cd".repeat(32);
        let forms = [
            digest.clone(),
            format!("{digest}\n"),
            format!("{other}  other.tgz\n{digest}  file.tgz\n"),
            format!("{digest} *file.tgz"),
            format!("{digest}  ./out/file.tgz"),
            format!(
                r#"{{"assets":[{{"name":"other.tgz"}},{{"name":"file.tgz","digest":"sha256:{digest}"}}]}}"#
            ),
        ];
        for form in forms {
            assert_eq!(digest_in(&form, "file.tgz").unwrap().as_str(), digest, "{form}");
        }
    }

    #[test]
    fn a_page_without_the_digest_of_the_file_has_none() {
        let digest = "ab".repeat(32);
        let pages = [
            String::new(),
            "<html><body>404: not found</body></html>".to_owned(),
            "abc".to_owned(),
            format!("{digest}  other.tgz\n"),
            format!("{digest}  my-file.tgz\n"),
            r#"{"message":"Not Found"}"#.to_owned(),
            r#"{"assets":[{"name":"file.tgz","digest":null}]}"#.to_owned(),
        ];
        for page in pages {
            assert_eq!(digest_in(&page, "file.tgz"), None, "{page}");
        }
    }
}
