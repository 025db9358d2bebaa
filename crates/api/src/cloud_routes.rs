//! Routes to the pods of nodes in the network of a cloud provider.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::addresses::HttpUrl;
use crate::names::{NameError, is_label, text_newtype};
use crate::words::words;

words! {
    /// A cloud provider with route tables.
    CloudProvider {
        /// Tencent Cloud.
        Tencent = "tencent",
        /// Alibaba Cloud.
        Aliyun = "aliyun",
    }
}

impl CloudProvider {
    /// The provider of a word of a user: also `alibaba` is Alibaba Cloud.
    ///
    /// # Errors
    /// When no provider has this name.
    pub fn of_word(word: &str) -> Result<Self, NameError> {
        if word == "alibaba" { Ok(Self::Aliyun) } else { word.parse() }
    }
}

text_newtype! {
    /// The name of a region of a cloud provider, such as `ap-guangzhou`.
    CloudRegion
}
text_newtype! {
    /// The identifier of a route table, such as `rtb-azd4dt1c`: 1 to 63 of a-z, A-Z, 0-9 and `-`.
    RouteTableId
}

impl FromStr for CloudRegion {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_label(text) {
            return Ok(Self(text.to_owned()));
        }
        let expected = "the name of a region, such as ap-guangzhou or cn-hangzhou";
        Err(NameError::Malformed { expected, value: text.to_owned() })
    }
}

impl FromStr for RouteTableId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if (1..=63).contains(&text.len()) && text.chars().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        let expected = "the identifier of a route table, such as rtb-azd4dt1c";
        Err(NameError::Malformed { expected, value: text.to_owned() })
    }
}

/// Where the routes to the pods of a cluster are. The JSON form is that of the state files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudRoutes {
    /// The provider.
    pub provider: CloudProvider,
    /// The region of the route tables and of the nodes.
    pub region: CloudRegion,
    /// The route tables; at least one.
    pub route_tables: BTreeSet<RouteTableId>,
    /// The URL of the API; when `None`, the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<HttpUrl>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_providers_regions_and_tables_are_checked() {
        assert_eq!(CloudProvider::of_word("alibaba"), Ok(CloudProvider::Aliyun));
        assert_eq!(CloudProvider::of_word("tencent"), Ok(CloudProvider::Tencent));
        assert!(CloudProvider::of_word("aws").is_err());
        assert!("ap-guangzhou".parse::<CloudRegion>().is_ok());
        assert!("vtb-bp145q7glnuzdvzu2".parse::<RouteTableId>().is_ok());
        for bad in ["", "a b", "a/b", "https://a", "$(id)"] {
            assert!(bad.parse::<CloudRegion>().is_err() && bad.parse::<RouteTableId>().is_err(), "{bad}");
        }
    }
}
