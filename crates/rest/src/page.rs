//! One page of a list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list. Objects are ordered by namespace and name, the hosts of a cluster as they are declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The value of the parameter `continue` for the next page. The last page has none.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many items follow after this page.
    pub remaining: usize,
}
