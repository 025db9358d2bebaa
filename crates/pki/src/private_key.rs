//! Reads private keys. kubeadm writes RSA keys as PKCS #1 and ECDSA keys as SEC 1, kubeon writes PKCS #8.

use rcgen::KeyPair;
use x509_parser::pem::parse_x509_pem;

/// The DER of `rsaEncryption`.
const RSA: &[u8] =
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
/// The DER of `id-ecPublicKey` with the curve P-256.
const P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07,
];
/// The DER of `id-ecPublicKey` with the curve P-384.
const P384: &[u8] = &[
    0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00,
    0x22,
];
/// Where the curve begins in the DER of an elliptic algorithm.
const CURVE: usize = 11;

const VERSION_0: [u8; 3] = [0x02, 0x01, 0x00];
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// Reads a private key in any of these forms, PEM.
///
/// # Errors
/// When the key is damaged, or of an algorithm that kubeon does not use.
pub(crate) fn read(text: &str) -> Result<KeyPair, rcgen::Error> {
    match as_pkcs8(text) {
        Some(der) => KeyPair::try_from(der),
        None => KeyPair::from_pem(text),
    }
}

/// The PKCS #8 form of a key in an older form; `None` for any other text.
fn as_pkcs8(text: &str) -> Option<Vec<u8>> {
    let (_, pem) = parse_x509_pem(text.as_bytes()).ok()?;
    let algorithm = match pem.label.as_str() {
        "RSA PRIVATE KEY" => RSA,
        "EC PRIVATE KEY" => {
            [P256, P384].into_iter().find(|algorithm| contains(&pem.contents, &algorithm[CURVE..]))?
        }
        _ => return None,
    };
    let mut content = VERSION_0.to_vec();
    content.extend_from_slice(algorithm);
    content.extend(element(OCTET_STRING, &pem.contents));
    Some(element(SEQUENCE, &content))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// An element of DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let first = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
    let digits = &length[first..];
    let mut all = vec![tag];
    if content.len() >= 0x80 {
        all.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
    }
    all.extend_from_slice(digits);
    all.extend_from_slice(content);
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Keys of a test, without the lines that surround them in a file.
    const RSA_KEY: &str = "MIIEpAIBAAKCAQEAoU+N+Ra0kEEYkt4nKWge7JXdaCqtJbjYhKQw0QZolfZUEn+wkD89C3q+fAdUqpHlcIHt9Jvg07\
         2xvFjOwpy0KhArdkGNkN81YjHetwt7ZJ8ZWkAK/nat7cN28smBRgLY5Fmj3MfxQ6B9opQiIasJSwgWvPtqDEJrclsN\
         V7IZngwOnsVbieEVYiwriLQTm6sXBG8HBxcOH4XL4QcAABzsbRv5oqBazHUmt44dJoXtmi6ol1wtHjInsLfzr3OA/p\
         wwiwrMQ59mDHKay/T4Keiy2H7O90CLwvjbIjqEEuWSiwPRdaVhTve9vXgEUipcXZMvWX1hvwYUIlOSsu5MqTFDdQID\
         AQABAoIBADgUH5+ySIiD0OayC3xGIcYO3Z9qgrJD/iWyrPPl3fMQZS7fLEMhcPfuLo2QwNrhiJmh2dc5X6JM5p67Yv\
         neH3YmE+3zISN1rana+3m4KKgU9WveKtRG7vVjCBWkfugXck6EaUaGTfY8M6ETDYCV5M+sWrdNUhM7/f2N8OgFVwmN\
         yzBGTb8nSOcIuvjibV8ZOmK9JmB8j142AJr0qgQe7jQGNT8irE1Vjz1BrZ0GFEzl4AMaDzVjnE/MU7sVSlqHpRzl4a\
         wk6XUOeasu4DPfXO3iumm5ELpbof4JcGeuqAn+FflYpX+i+V86MmSkL+aYyrHV0sDj87nuS+OQs1CdYSsCgYEAzvAa\
         b85mAyFeWLFtjmITH2lG1z/FfHDrse85/QBA1gpWjoO81zqRCwmDg+4R5/oPnLXYk8y0QDKSxT3/C5Gun9Gc52gc6e\
         NS9PZS9uqma8/FbcHj+hTEAg9vxSdhEuaPJd1IuS6lkdNymCXNAtbRN6tsm8f4MwqU5GEP6Co/6y8CgYEAx44n4k4/\
         Zpxn2ACul8UhGA/txiDwdMpsm6fdFG3hLH5Z9q6BUNxfK/ri/3wK29UqWG2ELgB/aFydZyAN0/O6jSaWyv8+2PjWOO\
         izPhO9h5Pgikb9zyHUGa3+Ju0w6mbI0Y6z/HqWWkuABPcJZ1DODeuq9Jk36C8h+57s803wgpsCgYA8m0GC4VYrMIir\
         PTuy6bJkDrc6r2ita3z8He5D1OEoTtrO3nJeLr7wFpc3+m+wGyKbaP7HOrrH2of10JRz1PTpxcBIXcuqDHPtXn8p5c\
         tb4/wUiyazxYUqfU7k1QWvPWtLUaXM5oaDUQRM3zVN0ZBw13n1nflpKX417N91xXn27QKBgQC0epUHz8z3eK1SZguB\
         p//uSzm430GZ3xmrDX6dY2MrYnrq55h9EVHh7N4wQndvqrLJlwLcuAaC1IBnLE5VSzGFR0lJ/t9QTH0yqwKxOhlH7S\
         4+4UXbd7TkJMCfZBXBaYRmQrH1vskMkQwPcX1Hu4UggevznD879qS9dVbIFc1X0QKBgQCghb6BYeQe10yzkk6Ji5IZ\
         8oGnMUyOgb2HfdUoyMU4f+AcR8QmD30wDxxXpQ3jobeRraB80Qx1AU2W7IrLQQ7nefSxueINuvizVMsfWDqlpAkNig\
         qV+Zzuy6YdaDoTvTAb86YdURcNdf9/B0e7Zh8JVnG3oy7N5v73v/y9adSwLA==";
    const EC_KEY: &str = "MHcCAQEEICi8MaPx36KF3puCTofMdsWZTR5Dmcuiz1Nlb+DHVPEroAoGCCqGSM49AwEHoUQDQgAE/aKqZyYvF4ovwp\
         ++cXBww5z235WqZZoo3//1IJpy6r/5J7Ye107xiqoxEaH4xG1g+U27tLEBhjOps7KWYxwkxQ==";

    /// A key as kubeadm writes it.
    pub(crate) fn key_of_kubeadm(algorithm: &str) -> String {
        let body = if algorithm == "RSA" { RSA_KEY } else { EC_KEY };
        let lines: Vec<&str> =
            body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        let name = format!("{algorithm} PRIVATE KEY");
        format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", lines.join("\n"))
    }

    #[test]
    fn keys_of_kubeadm_are_read_as_they_are() {
        for (algorithm, signs_with) in
            [("RSA", &rcgen::PKCS_RSA_SHA256), ("EC", &rcgen::PKCS_ECDSA_P256_SHA256)]
        {
            let pair = read(&key_of_kubeadm(algorithm)).unwrap();
            assert!(pair.is_compatible(signs_with), "{algorithm}");
            let again = read(&pair.serialize_pem()).unwrap();
            assert_eq!(again.public_key_pem(), pair.public_key_pem(), "{algorithm}");
        }
    }

    #[test]
    fn a_damaged_key_is_an_error() {
        let key = key_of_kubeadm("RSA");
        for text in ["", "x", &key.replace("RSA", "DSA"), &key.replacen("MI", "MJ", 1)] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_of_der_have_as_many_bytes_as_they_need() {
        for (length, head) in [
            (0, &[0x30, 0x00][..]),
            (127, &[0x30, 0x7f][..]),
            (128, &[0x30, 0x81, 0x80][..]),
            (256, &[0x30, 0x82, 0x01, 0x00][..]),
        ] {
            let made = element(SEQUENCE, &vec![7; length]);
            assert!(made.starts_with(head) && made.len() == head.len() + length, "{length}");
        }
    }
}
