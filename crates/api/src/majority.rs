//! The rule of etcd: its members serve while more than half of them do.

/// Whether so many of `total` members of etcd are a majority of them, and so a quorum. No member is no majority.
#[must_use]
pub const fn is_majority(count: usize, total: usize) -> bool {
    count > total / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half() {
        let smallest = |total: usize| (0..=total).find(|count| is_majority(*count, total));
        assert_eq!([0, 1, 2, 3, 4, 5].map(smallest), [None, Some(1), Some(2), Some(2), Some(3), Some(3)]);
    }
}
