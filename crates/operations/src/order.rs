//! The orders of operations: in the queue, in the history, and for removal from the history.

use k8s_openapi::jiff::Timestamp;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::OperationResult;

use crate::names::SCORE_ANNOTATION;

fn name(operation: &ClusterOperation) -> &str {
    operation.metadata.name.as_deref().unwrap_or_default()
}

fn created(operation: &ClusterOperation) -> Timestamp {
    operation.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0)
}

fn score(operation: &ClusterOperation) -> i64 {
    let annotations = operation.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(SCORE_ANNOTATION)).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether the operation ended.
#[must_use]
pub fn ended(operation: &ClusterOperation) -> bool {
    let result = operation.status.as_ref().and_then(|status| status.status);
    matches!(result, Some(OperationResult::Succeeded | OperationResult::Failed))
}

/// The order in which operations run: by time, then by name.
pub fn queue<T: AsRef<ClusterOperation>>(operations: &mut [T]) {
    operations.sort_by(|a, b| {
        let (a, b) = (a.as_ref(), b.as_ref());
        created(a).cmp(&created(b)).then_with(|| name(a).cmp(name(b)))
    });
}

/// The order in which the history shows operations: by score, then newest first. Creation times have whole
/// seconds.
pub fn history<T: AsRef<ClusterOperation>>(operations: &mut [T]) {
    operations.sort_by(|a, b| {
        let (a, b) = (a.as_ref(), b.as_ref());
        let by_score = score(a).cmp(&score(b));
        by_score.then_with(|| created(b).cmp(&created(a))).then_with(|| name(b).cmp(name(a)))
    });
}

/// The ended operations that exceed the limit of the history.
#[must_use]
pub fn excess<T: AsRef<ClusterOperation> + Clone>(operations: &[T], limit: usize) -> Vec<T> {
    let mut finished: Vec<T> =
        operations.iter().filter(|operation| ended((*operation).as_ref())).cloned().collect();
    history(&mut finished);
    finished.split_off(limit.min(finished.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::operation;

    fn scored(name: &str, score: i64, at: i64) -> Arc<ClusterOperation> {
        let mut scored = operation(name, at);
        scored.metadata.annotations = Some([(SCORE_ANNOTATION.to_owned(), score.to_string())].into());
        Arc::new(scored)
    }

    fn ended_with(mut operation: ClusterOperation, result: OperationResult) -> Arc<ClusterOperation> {
        operation.status.get_or_insert_default().status = Some(result);
        Arc::new(operation)
    }

    /// Contract A, case 38. There are enough operations for an unstable sort to be noticed.
    #[test]
    fn a38_scores_come_before_times_for_any_number() {
        let given =
            [(100, 2), (100, 1), (100, 3), (2, 300), (2, 100), (2, 200), (101, 12), (101, 11), (101, 13)];
        let mut operations: Vec<_> =
            given.iter().map(|(s, t)| scored(&format!("o{s}-{t}"), *s, *t)).collect();
        history(&mut operations);
        let names: Vec<_> = operations.iter().map(|operation| name(operation)).collect();
        let wanted =
            ["o2-300", "o2-200", "o2-100", "o100-3", "o100-2", "o100-1", "o101-13", "o101-12", "o101-11"];
        assert_eq!(names, wanted);
    }

    /// Cases 36 and 37.
    #[test]
    fn a36_a37_the_oldest_that_ended_goes_and_what_runs_stays() {
        let mut operations: Vec<_> = (1..=6)
            .map(|at| ended_with(operation(&format!("o{at}"), at), OperationResult::Succeeded))
            .collect();
        let removed: Vec<_> =
            excess(&operations, 5).iter().map(|operation| name(operation).to_owned()).collect();
        assert_eq!(removed, ["o1"]);
        operations[0] = ended_with(operation("o1", 1), OperationResult::Running);
        assert!(excess(&operations, 5).is_empty());
        assert_eq!(excess(&operations, 1).len(), 4);
    }

    #[test]
    fn of_two_operations_of_one_second_the_history_keeps_the_later_one() {
        let operations: Vec<_> =
            ["o3", "o4"].map(|name| ended_with(operation(name, 1), OperationResult::Succeeded)).into();
        let removed: Vec<_> = excess(&operations, 1).iter().map(|removed| name(removed).to_owned()).collect();
        assert_eq!(removed, ["o3"]);
    }

    /// Case 39.
    #[test]
    fn a39_the_newest_comes_first() {
        let mut operations = vec![scored("b", 0, 2), scored("a", 0, 1), scored("c", 0, 3)];
        history(&mut operations);
        assert_eq!(operations.iter().map(|operation| name(operation)).collect::<String>(), "cba");
        queue(&mut operations);
        assert_eq!(operations.iter().map(|operation| name(operation)).collect::<String>(), "abc");
    }

    proptest! {
        #[test]
        fn the_history_does_not_depend_on_the_order_it_is_given(
            given in proptest::collection::vec((0_i64..4, 0_i64..6), 0..60), changes in 0_usize..60
        ) {
            let operations: Vec<_> =
                given.iter().enumerate().map(|(at, (s, t))| scored(&format!("o{at}"), *s, *t)).collect();
            let (mut one, mut other) = (operations.clone(), operations);
            let by = changes.min(other.len());
            other.rotate_left(by);
            history(&mut one);
            history(&mut other);
            prop_assert_eq!(one, other);
        }
    }
}
