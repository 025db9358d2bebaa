//! Runs every kept input.

use std::fs;
use std::path::Path;

use kubeon_fuzz_targets::TARGETS;

#[test]
fn every_kept_input_is_read_without_a_broken_rule() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpus.join(target.name);
        let inputs: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{} has no input", target.name);
        for input in inputs {
            (target.run)(&fs::read(&input).unwrap());
        }
    }
    let folders = fs::read_dir(&corpus).unwrap().count();
    assert_eq!(folders, TARGETS.len(), "a folder without a target");
}
