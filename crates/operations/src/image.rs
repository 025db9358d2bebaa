//! Validation of image references.

/// The longest reference without a tag that registries accept, in bytes.
const LONGEST: usize = 255;

/// Why a text is not an image reference; `None` when it is one.
#[must_use]
pub fn refusal(text: &str) -> Option<String> {
    let refuse = |why: &str| Some(format!("image {text:?} is not an image reference: {why}"));
    if text.is_empty() {
        return Some("spec.image is empty; name the image that the Job runs".to_owned());
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return refuse("the part after '@' is not a digest such as sha256:…");
    }
    // A colon before the last '/' belongs to the registry's port.
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return refuse("the part after ':' is not a tag");
    }
    if path.len() > LONGEST {
        return refuse("it is longer than 255 characters");
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    let with_registry = parts.len() > 1
        && parts.first().is_some_and(|first| first.contains(['.', ':']) || *first == "localhost");
    if with_registry && !is_registry(parts.remove(0)) {
        return refuse("its registry is not a host name");
    }
    if parts.iter().all(|part| is_component(part)) {
        return None;
    }
    refuse("use lower-case letters, digits, '.', '_', '-' and '/'")
}

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(kind, hex)| {
        !kind.is_empty()
            && kind.chars().all(|c| c.is_ascii_alphanumeric() || "+._-".contains(c))
            && (32..=128).contains(&hex.len())
            && hex.chars().all(|c| c.is_ascii_hexdigit())
    })
}

fn is_tag(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && !text.starts_with(['.', '-'])
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |part: &str| {
        let edge = |c: char| c.is_ascii_alphanumeric();
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || c == '-')
    };
    host.split('.').all(label)
        && port.is_none_or(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()))
}

fn is_component(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || "._-".contains(c))
        && !text.contains("..")
        && !text.contains("___")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract A, case 19.
    #[test]
    fn a19_what_names_an_image_is_told_from_what_does_not() {
        for good in [
            "a",
            "ubuntu",
            "ubuntu:14.01",
            "ghcr.io/kubean-io/spray-job:latest",
            "wangzhichidocker/kubeonkube:v0.1",
            "registry:5000/x",
            "localhost/a_b/c-d.e",
            "x@sha256:0123456789012345678901234567890123456789012345678901234567890123",
        ] {
            assert_eq!(refusal(good), None, "{good}");
        }
        for bad in [
            "",
            " ",
            "_",
            ".",
            "/x",
            "x/",
            "a b",
            "a;rm -rf /",
            "$(id)x",
            "a::::b",
            "a\tb",
            "镜像",
            "x@sha256:zz",
            "UPPER/Case:tag",
            "-o",
            "a:",
        ] {
            assert!(refusal(bad).is_some(), "{bad}");
        }
    }
}
