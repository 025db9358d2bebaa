//! Takes the kernel proper out of a bzImage. An emulated machine would need many seconds to unpack it at every boot.

use std::io::Read as _;

/// Positions in the header of a bzImage (Documentation/arch/x86/boot.rst of Linux).
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// The first version of the header that describes the payload: 2.08.
const WITH_PAYLOAD: u16 = 0x0208;
const SECTOR: usize = 512;
/// First bytes of the two formats that Debian's kernels are packed in.
const LZ4_LEGACY: &[u8] = b"\x02\x21\x4c\x18";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const LZ4_BLOCK: usize = 8 << 20;

/// The ELF file inside a bzImage; `None` if the image is something else or is compressed in a way that is not known.
pub(crate) fn uncompressed(image: &[u8]) -> Option<Vec<u8>> {
    let payload = payload(image)?;
    let kernel = if let Some(blocks) = payload.strip_prefix(LZ4_LEGACY) {
        from_lz4(blocks)
    } else if payload.starts_with(ZSTD) {
        from_zstd(payload)
    } else {
        None
    };
    kernel.filter(|kernel| kernel.starts_with(b"\x7fELF"))
}

/// The legacy format of LZ4: blocks of 8 MiB, each after its packed size. The kernel's build appends the unpacked size.
fn from_lz4(mut blocks: &[u8]) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    while blocks.len() > 4 {
        let (size, rest) = blocks.split_first_chunk::<4>()?;
        let (block, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*size)).ok()?)?;
        kernel.extend(lz4_flex::block::decompress(block, LZ4_BLOCK).ok()?);
        blocks = rest;
    }
    Some(kernel)
}

fn from_zstd(payload: &[u8]) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    // The unpacked size follows the frame.
    zstd::Decoder::with_buffer(payload).ok()?.single_frame().read_to_end(&mut kernel).ok()?;
    Some(kernel)
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let version = u16::from_le_bytes(image.get(VERSION..VERSION + 2)?.try_into().ok()?);
    if version < WITH_PAYLOAD {
        return None;
    }
    let number = |at: usize| -> Option<usize> {
        usize::try_from(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?)).ok()
    };
    // 0 means 4.
    let setup = match image.get(SETUP_SECTORS)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let begin = ((setup + 1) * SECTOR).checked_add(number(PAYLOAD_OFFSET)?)?;
    image.get(begin..begin.checked_add(number(PAYLOAD_LENGTH)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf '\177ELF kernel kernel kernel' | lz4 -l`, as Linux packs itself.
    const LZ4: &str = "02214c1814000000b57f454c46206b65726e656c07005065726e656c";
    const KERNEL: &[u8] = b"\x7fELF kernel kernel kernel";

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR + 16];
        image[SETUP_SECTORS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[VERSION..VERSION + 2].copy_from_slice(&0x020f_u16.to_le_bytes());
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(payload.len()).unwrap();
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
        image.extend(payload);
        image.extend(b"what comes after it");
        image
    }

    #[test]
    fn unpacks_what_debian_ships() {
        let size = u32::try_from(KERNEL.len()).unwrap().to_le_bytes();
        let lz4 = [&hex::decode(LZ4).unwrap()[..], &size].concat();
        assert_eq!(uncompressed(&image(&lz4)).unwrap(), KERNEL);
        let zstd = [&zstd::encode_all(KERNEL, 3).unwrap()[..], &size].concat();
        assert_eq!(uncompressed(&image(&zstd)).unwrap(), KERNEL);
    }

    #[test]
    fn leaves_alone_what_it_does_not_know() {
        let no_elf = zstd::encode_all(&b"no kernel"[..], 3).unwrap();
        for payload in [&b"\x1f\x8bgzip"[..], b"", &no_elf] {
            assert_eq!(uncompressed(&image(payload)), None);
        }
        let mut damaged = image(&no_elf);
        damaged[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(uncompressed(&damaged), None);
        assert_eq!(uncompressed(b"short"), None);
    }
}
