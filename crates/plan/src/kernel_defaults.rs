//! Whether the kubelet of a host can insist on the kernel parameters that it expects.

use kubeon_render::config::KERNEL_DEFAULTS;
use kubeon_wire::Facts;

/// Why the kubelet would not start with `protectKernelDefaults`; `None` if every parameter has its value or can
/// be set before the kubelet starts.
pub(crate) fn obstacle(facts: &Facts) -> Option<String> {
    KERNEL_DEFAULTS.iter().find_map(|(name, expected)| match facts.parameters.get(*name) {
        None => Some(format!("{name} cannot be read")),
        Some(value) if value != expected && facts.fixed_parameters.iter().any(|fixed| fixed == name) => {
            Some(format!("{name} is {value}, not {expected}, and cannot be set"))
        }
        Some(_) => None,
    })
}

/// The warning for a host whose kubelet does not insist on its kernel parameters.
pub(crate) fn warning(facts: &Facts) -> Option<String> {
    obstacle(facts).map(|why| format!("its kubelet runs without protectKernelDefaults: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_must_hold_or_be_settable() {
        let mut facts = crate::sim::bare("h1");
        assert_eq!(obstacle(&facts), None);
        facts.parameters.insert("kernel.panic".to_owned(), "0".to_owned());
        assert_eq!(obstacle(&facts), None, "the kernel step sets it");
        facts.fixed_parameters = vec!["kernel.panic".to_owned(), "vm.panic_on_oom".to_owned()];
        assert_eq!(obstacle(&facts).unwrap(), "kernel.panic is 0, not 10, and cannot be set");
        facts.parameters.insert("kernel.panic".to_owned(), "10".to_owned());
        assert_eq!(obstacle(&facts), None, "the value holds");
        facts.parameters.remove("kernel.keys.root_maxkeys");
        assert_eq!(obstacle(&facts).unwrap(), "kernel.keys.root_maxkeys cannot be read");
    }
}
