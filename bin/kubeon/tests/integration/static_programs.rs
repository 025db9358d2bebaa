//! The programs for hosts are static, so that they run on any Linux of their architecture.

use std::path::Path;

/// Kinds of program headers of an ELF file.
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
/// The entry of the dynamic section that names a library.
const DT_NEEDED: u64 = 1;

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut all = [0; 8];
    all[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(all)
}

/// Offset and size of every segment of a kind in a 64-bit ELF file.
fn segments(elf: &[u8], kind: u32) -> Vec<(usize, usize)> {
    assert_eq!(&elf[..6], b"\x7fELF\x02\x01", "a 64-bit little-endian ELF file");
    let (start, size, count) = (number(elf, 32, 8), number(elf, 54, 2), number(elf, 56, 2));
    (0..count)
        .map(|index| usize::try_from(start + index * size).unwrap())
        .filter(|&at| number(elf, at, 4) == u64::from(kind))
        .map(|at| (number(elf, at + 8, 8).try_into().unwrap(), number(elf, at + 32, 8).try_into().unwrap()))
        .collect()
}

fn libraries(elf: &[u8]) -> usize {
    let entries = segments(elf, PT_DYNAMIC).into_iter().flat_map(|(at, size)| (at..at + size).step_by(16));
    entries.filter(|&at| number(elf, at, 8) == DT_NEEDED).count()
}

#[test]
fn the_programs_are_static() {
    let folder = Path::new(env!("CARGO_BIN_EXE_kubeon")).parent().unwrap();
    for program in ["kubeon-node", "kubeon"] {
        let file = folder.join(program);
        let elf = std::fs::read(&file).unwrap_or_else(|error| {
            panic!("{}: {error}; build it with: cargo build --workspace --bins", file.display())
        });
        assert_eq!(segments(&elf, PT_INTERP), [], "{program} needs an interpreter");
        assert_eq!(libraries(&elf), 0, "{program} needs libraries");
    }
}

#[test]
fn a_dynamic_program_is_detected() {
    let shell = std::fs::read("/bin/sh").unwrap();
    assert_eq!(segments(&shell, PT_INTERP).len(), 1);
    assert!(libraries(&shell) > 0);
}
