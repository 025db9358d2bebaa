//! Reads and sets kernel parameters.

use std::fs;
use std::path::PathBuf;

use kubeon_wire::StepFailure;

use crate::durable::read_text;
use crate::failure::{failed, plain};
use crate::root::Root;

/// Sets a parameter. Returns whether it had another value.
///
/// # Errors
/// The reason why the parameter keeps another value.
pub fn set(root: &Root, name: &str, value: &str) -> Result<bool, String> {
    let place = place(root, name).map_err(|failure| failure.cause)?;
    let old = match read_text(&place) {
        Ok(Some(old)) => old,
        Ok(None) => return Err("this kernel does not have the parameter".to_owned()),
        Err(failure) => return Err(failure.cause),
    };
    if same(&old, value) {
        return Ok(false);
    }
    fs::write(&place, value).map_err(|error| plain(&error))?;
    match value_of(root, name) {
        Some(now) if same(&now, value) => Ok(true),
        now => Err(format!("the kernel keeps {}", now.unwrap_or_default())),
    }
}

/// The current value of a parameter; `None` if it cannot be read.
#[must_use]
pub fn value_of(root: &Root, name: &str) -> Option<String> {
    let text = fs::read_to_string(place(root, name).ok()?).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether two values are the same to the kernel, which separates words by tabs.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

fn place(root: &Root, name: &str) -> Result<PathBuf, StepFailure> {
    // `net/ipv4/conf/eth0.1/x` is written with slashes, so that a name may contain a dot.
    let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    root.given(&format!("/proc/sys/{path}")).map_err(|_| failed(format!("{name} is not a kernel parameter")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn a_parameter_cannot_name_another_file() {
        let bench = Bench::new();
        assert!(set(&bench.host.root, "../../etc/passwd", "x").is_err());
    }
}
