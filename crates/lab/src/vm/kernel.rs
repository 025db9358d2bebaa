//! Takes the kernel proper out of a bzImage. An emulated machine would need many seconds to unpack it at every boot.

use std::io::Read as _;

use lzma_rust2::XzReader;

/// Positions in the header of a bzImage (Documentation/arch/x86/boot.rst of Linux).
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// The first version of the header that describes the payload: 2.08.
const WITH_PAYLOAD: u16 = 0x0208;
const SECTOR: usize = 512;

/// The ELF file inside a bzImage; `None` if the image is something else or is compressed in a way that is not known.
pub(crate) fn uncompressed(image: &[u8]) -> Option<Vec<u8>> {
    let payload = payload(image)?;
    let kernel = if payload.starts_with(b"\xfd7zXZ\0") {
        unpacked(XzReader::new(payload, false))
    } else if payload.starts_with(b"\x28\xb5\x2f\xfd") {
        // The kernel's build appends the unpacked size.
        unpacked(zstd::Decoder::with_buffer(payload).ok()?.single_frame())
    } else {
        None
    };
    kernel.filter(|kernel| kernel.starts_with(b"\x7fELF"))
}

fn unpacked(mut reader: impl std::io::Read) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    reader.read_to_end(&mut kernel).ok()?;
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
    // 0 stands for 4.
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

    /// `printf '\177ELF kernel' | xz --check=crc32 --x86 --lzma2`, as Linux packs itself.
    const XZ: &str = "fd377a585a0000016922de3602010400210116000d86351f01000a7f454c46206b65726e656c0000d0e2378a00011f0b3d620e7a9042990d010000000001595a";

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
        let size = 11_u32.to_le_bytes();
        let xz = [&hex::decode(XZ).unwrap()[..], &size].concat();
        assert_eq!(uncompressed(&image(&xz)).unwrap(), b"\x7fELF kernel");
        let zstd = [&zstd::encode_all(&b"\x7fELF kernel"[..], 3).unwrap()[..], &size].concat();
        assert_eq!(uncompressed(&image(&zstd)).unwrap(), b"\x7fELF kernel");
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
