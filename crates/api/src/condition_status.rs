//! The status of a Kubernetes condition.

use crate::words::words;

words! {
    /// The status of a condition. In the types of `k8s_openapi` it is a `String`, which may be compared with this type.
    ConditionStatus {
        /// The condition is met.
        True = "True",
        /// The condition is not met.
        False = "False",
        /// It is not known whether the condition is met.
        Unknown = "Unknown",
    }
}

impl From<bool> for ConditionStatus {
    fn from(is_met: bool) -> Self {
        if is_met { Self::True } else { Self::False }
    }
}

impl PartialEq<ConditionStatus> for String {
    fn eq(&self, status: &ConditionStatus) -> bool {
        self == status.as_str()
    }
}
