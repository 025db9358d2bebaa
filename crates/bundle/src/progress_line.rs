//! The lines of a build's progress.

use kubeon_bundle::{BuildProgress, BuildState};

/// A component's progress is printed after each tenth of its packages.
const TENTHS: usize = 10;

/// A component's line is printed when this number changes.
pub(crate) fn step(state: BuildState) -> usize {
    match state {
        BuildState::Building { done, total } => done * TENTHS / total.max(1),
        BuildState::Downloading { done, total } => {
            usize::try_from(done * TENTHS as u64 / total.max(1)).unwrap_or(TENTHS)
        }
        BuildState::Queued | BuildState::Waiting => TENTHS + 1,
        BuildState::Fetching => TENTHS + 2,
        BuildState::Linking => TENTHS + 3,
        BuildState::Packing => TENTHS + 4,
        BuildState::Cached | BuildState::Done | BuildState::Failed => TENTHS + 5,
    }
}

/// The progress of a component in one line.
pub(crate) fn line(progress: &BuildProgress) -> String {
    let left = progress.seconds_left().map_or(String::new(), |left| format!(", about {left} s left"));
    let doing = match progress.state {
        BuildState::Queued | BuildState::Waiting => "waiting for another build of this component".to_owned(),
        BuildState::Fetching => format!("fetching{left}"),
        BuildState::Building { done, total } => format!("building {done}/{total} packages{left}"),
        BuildState::Downloading { done, total } => {
            format!("downloading {}/{} MiB{left}", done >> 20, total >> 20)
        }
        BuildState::Linking => format!("linking{left}"),
        BuildState::Packing => "packing".to_owned(),
        BuildState::Cached => "found in the cache".to_owned(),
        BuildState::Done => format!("built in {} s", progress.elapsed.as_secs()),
        BuildState::Failed => "failed".to_owned(),
    };
    format!("{:12} {doing}", progress.component)
}
