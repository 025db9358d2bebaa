//! Static pods: in this world they are the services of their programs, and they need a kubelet that runs when they start.

use kubeon_wire::{POD_SUFFIX, unit_of_program};

/// The name of the service that stands for a unit.
pub(super) fn service_of(unit: &str) -> String {
    match unit.strip_suffix(POD_SUFFIX) {
        Some(program) => unit_of_program(program, false),
        None => unit.to_owned(),
    }
}

/// Whether the text of a unit is that of a static pod.
pub(super) fn is_pod(text: &str) -> bool {
    text.starts_with('{')
}
