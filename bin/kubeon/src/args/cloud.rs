//! `kubeon cloud`, and the flags of `kubeon create` about routes of a cloud provider.

use clap::{Args, Subcommand};
use kubeon_api::{CloudProvider, CloudRoutes};
use kubeon_plan::Refusal;

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;

pub(crate) const CLOUD_EXAMPLES: &str = "Route tables of tencent and aliyun get one route for each node: to its pods, by its address. The keys of the account are in
CLOUD_SECRET_ID and CLOUD_SECRET_KEY. Afterwards every change of the cluster changes its routes.

Examples:
  kubeon cloud modify-router demo --provider tencent --endpoint ap-guangzhou --router-table-id rtb-azd4dt1c
  kubeon cloud modify-router demo               after a change that could not reach the provider
  kubeon cloud delete-router demo";

/// `kubeon cloud`.
#[derive(Debug, Subcommand)]
pub(crate) enum CloudCommand {
    /// Bring the routes to the pods of a cluster up to date
    #[command(visible_alias = "mr")]
    ModifyRouter(Box<ModifyRouterArgs>),
    /// Remove the routes to the pods of a cluster
    #[command(visible_alias = "dr")]
    DeleteRouter(DeleteRouterArgs),
}

/// `kubeon cloud modify-router`.
#[derive(Debug, Args)]
pub(crate) struct ModifyRouterArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// The provider: tencent or aliyun [default: as before]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The region, such as ap-guangzhou [default: as before]
    #[arg(long, value_name = "REGION")]
    pub endpoint: Option<String>,
    /// A route table; may be repeated [default: as before]
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub router_table_id: Vec<String>,
    /// URL of the API of a private cloud [default: that of the provider]
    #[arg(long, value_name = "URL")]
    pub api: Option<String>,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon cloud delete-router`.
#[derive(Debug, Args)]
pub(crate) struct DeleteRouterArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// Forget the routes without asking the provider: they stay there
    #[arg(long)]
    pub forget: bool,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// The flags of `kubeon create` about routes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cloud")]
pub(crate) struct CloudFlags {
    /// Keep routes to the pods in route tables of this provider: tencent or aliyun
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub cloud_provider: Option<String>,
    /// The region of the route tables, such as ap-guangzhou
    #[arg(long, value_name = "REGION", hide_short_help = true)]
    pub cloud_endpoint: Option<String>,
    /// A route table; may be repeated
    #[arg(long, value_name = "ID", value_delimiter = ',', hide_short_help = true)]
    pub cloud_router_table_id: Vec<String>,
    /// URL of the API of a private cloud [default: that of the provider]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub cloud_api: Option<String>,
}

/// The values of flags about routes, and what their names begin with.
struct RouteFlags<'a> {
    prefix: &'static str,
    provider: Option<&'a str>,
    endpoint: Option<&'a str>,
    tables: &'a [String],
    api: Option<&'a str>,
}

impl CloudFlags {
    /// The routes that the flags name. Empty values name none.
    ///
    /// # Errors
    /// All reasons why they cannot be used.
    pub(crate) fn routes(&self) -> Result<Option<CloudRoutes>, Vec<Refusal>> {
        RouteFlags {
            prefix: "--cloud-",
            provider: self.cloud_provider.as_deref(),
            endpoint: self.cloud_endpoint.as_deref(),
            tables: &self.cloud_router_table_id,
            api: self.cloud_api.as_deref(),
        }
        .read()
    }
}

impl ModifyRouterArgs {
    /// The routes that the flags name; what they omit is as in `stored`. The URL of an API belongs to its provider.
    ///
    /// # Errors
    /// All reasons why they cannot be used.
    pub(crate) fn routes(&self, stored: Option<&CloudRoutes>) -> Result<Option<CloudRoutes>, Vec<Refusal>> {
        let given = RouteFlags {
            prefix: "--",
            provider: self.provider.as_deref(),
            endpoint: self.endpoint.as_deref(),
            tables: &self.router_table_id,
            api: self.api.as_deref(),
        };
        let Some(stored) = stored.filter(|_| given.name_something()) else { return given.read() };
        let tables: Vec<_> = stored.route_tables.iter().map(ToString::to_string).collect();
        let api = stored.api.as_ref().filter(|_| given.provider.is_none());
        RouteFlags {
            provider: given.provider.or(Some(stored.provider.as_str())),
            endpoint: given.endpoint.or(Some(stored.region.as_str())),
            tables: if given.tables.is_empty() { &tables } else { given.tables },
            api: given.api.or(api.map(kubeon_api::HttpUrl::as_str)),
            ..given
        }
        .read()
    }
}

impl RouteFlags<'_> {
    /// Whether a flag has a value.
    fn name_something(&self) -> bool {
        let values = [self.provider, self.endpoint, self.api].into_iter().flatten();
        values.chain(self.tables.iter().map(String::as_str)).any(|text| !text.is_empty())
    }

    fn read(&self) -> Result<Option<CloudRoutes>, Vec<Refusal>> {
        if !self.name_something() {
            return Ok(None);
        }
        let tables: Vec<_> = self.tables.iter().filter(|table| !table.is_empty()).collect();
        let mut refusals = Vec::new();
        let provider = self.value(&mut refusals, "provider", self.provider, CloudProvider::of_word);
        let region = self.value(&mut refusals, "endpoint", self.endpoint, str::parse);
        let read = tables
            .iter()
            .map(|table| self.value(&mut refusals, "router-table-id", Some(table.as_str()), str::parse));
        let route_tables: Option<std::collections::BTreeSet<_>> = read.collect();
        if tables.is_empty() {
            refusals.push(self.missing("router-table-id"));
        }
        let api = self.api.filter(|text| !text.is_empty());
        let api = api.and_then(|text| self.value(&mut refusals, "api", Some(text), str::parse));
        match (provider, region, route_tables) {
            (Some(provider), Some(region), Some(route_tables)) if refusals.is_empty() => {
                Ok(Some(CloudRoutes { provider, region, route_tables, api }))
            }
            _ => Err(refusals),
        }
    }

    fn missing(&self, flag: &str) -> Refusal {
        let prefix = self.prefix;
        Refusal::argument(
            format!("{prefix}{flag}"),
            format!("is missing: routes need {prefix}provider, {prefix}endpoint and {prefix}router-table-id"),
        )
    }

    fn value<T, E: std::fmt::Display>(
        &self,
        refusals: &mut Vec<Refusal>,
        flag: &str,
        text: Option<&str>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            refusals.push(self.missing(flag));
            return None;
        };
        let refused =
            |error: E| Refusal::argument(format!("{}{flag} {text}", self.prefix), error.to_string());
        read(text).map_err(|error| refusals.push(refused(error))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(provider: &str, endpoint: &str, tables: &[&str]) -> CloudFlags {
        CloudFlags {
            cloud_provider: Some(provider.to_owned()),
            cloud_endpoint: Some(endpoint.to_owned()),
            cloud_router_table_id: tables.iter().map(|table| (*table).to_owned()).collect(),
            cloud_api: None,
        }
    }

    #[test]
    fn complete_flags_name_routes_and_empty_ones_name_none() {
        assert_eq!(flags("", "", &[""]).routes(), Ok(None));
        assert_eq!(CloudFlags::default().routes(), Ok(None));
        let routes = flags("alibaba", "cn-hangzhou", &["vtb-1", "vtb-2"]).routes().unwrap().unwrap();
        assert_eq!((routes.provider, routes.route_tables.len()), (CloudProvider::Aliyun, 2));
    }

    #[test]
    fn omitted_flags_keep_what_is_stored() {
        let stored = flags("tencent", "ap-guangzhou", &["rtb-1"]).routes().unwrap().unwrap();
        let stored = CloudRoutes { api: Some("https://api.example.com".parse().unwrap()), ..stored };
        let args = |words: &[&str]| {
            let line = [&["kubeon", "cloud", "modify-router", "t"], words].concat();
            let line = <crate::args::CommandLine as clap::Parser>::try_parse_from(line).unwrap();
            match line.command {
                Some(crate::args::CliCommand::Cloud(CloudCommand::ModifyRouter(args))) => *args,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(args(&[]).routes(Some(&stored)), Ok(None));
        let other_table = CloudRoutes { route_tables: ["rtb-2".parse().unwrap()].into(), ..stored.clone() };
        assert_eq!(args(&["--router-table-id", "rtb-2"]).routes(Some(&stored)), Ok(Some(other_table)));
        let moved = args(&["--provider", "aliyun", "--endpoint", "cn-hangzhou"]).routes(Some(&stored));
        assert_eq!(moved.unwrap().unwrap().api, None);
        assert_eq!(args(&["--endpoint", "ap-b"]).routes(None).unwrap_err().len(), 2);
    }

    #[test]
    fn every_mistake_is_named() {
        let refusals = flags("aws", "", &["a b"]).routes().unwrap_err();
        let subjects: Vec<_> = refusals.iter().map(|refusal| refusal.value.as_str()).collect();
        assert_eq!(subjects, ["--cloud-provider aws", "--cloud-endpoint", "--cloud-router-table-id a b"]);
    }
}
