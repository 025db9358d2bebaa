//! Single words: names, addresses, versions, digests, selectors.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use kubeon_api::{Cidr, ClusterName, Digest, HostAddress, HostName, LabelKey, LabelValue, Version};
use kubeon_engine::jump_path::JumpPath;
use kubeon_engine::selector::Selector;
use kubeon_engine::snapshot_place::SnapshotPlace;
use kubeon_plan::{MaxUnavailable, StageName, StepId};
use kubeon_s3::S3Address;
use kubeon_traces::TraceParent;

/// What is accepted is written in a form that is accepted as the same value.
pub(crate) fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    same_again::<Cidr>(text);
    same_again::<ClusterName>(text);
    same_again::<Digest>(text);
    same_again::<HostAddress>(text);
    same_again::<HostName>(text);
    same_again::<LabelKey>(text);
    same_again::<LabelValue>(text);
    same_again::<MaxUnavailable>(text);
    same_again::<StageName>(text);
    same_again::<StepId>(text);
    same_again::<Version>(text);
    let _ = text.parse::<JumpPath>();
    let _ = text.parse::<S3Address>();
    let _ = text.parse::<SnapshotPlace>();
    let _ = text.parse::<TraceParent>();
    let _ = Selector::parse(text);
}

fn same_again<T: FromStr + Display + PartialEq + Debug>(text: &str)
where
    T::Err: Debug,
{
    let Ok(value) = text.parse::<T>() else { return };
    let again = value.to_string().parse::<T>();
    assert_eq!(again.as_ref().ok(), Some(&value), "{text:?}: {again:?}");
}
