//! Files in a bucket of an object store with the S3 protocol.
//!
//! Requests are signed by `rusty-s3`; the secret key is in no request. The caller encrypts what the store must not read.

mod address;
mod bucket;
mod error;
mod settings;

pub use address::{AddressError, S3Address};
pub use bucket::{S3Bucket, code_and_message, listed_objects};
pub use error::S3Error;
pub use settings::{DEFAULT_REGION, S3Keys, S3Settings, keys_in_file};
