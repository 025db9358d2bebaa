//! The fuzzer of one target, named by `KUBEON_FUZZ_TARGET`. The arguments are those of libFuzzer.

#![no_main]

use std::sync::OnceLock;

use kubeon_fuzz_targets::{Target, target};
use libfuzzer_sys::fuzz_target;

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var("KUBEON_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        eprintln!("KUBEON_FUZZ_TARGET={name:?} is no target");
        std::process::exit(2);
    })
}

fuzz_target!(|bytes: &[u8]| (CHOSEN.get_or_init(chosen).run)(bytes));
