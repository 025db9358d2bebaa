//! Routes against an API that checks every signature.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use kubeon_api::{CloudProvider, CloudRoutes, ClusterName};
use kubeon_cloud::{CloudAccount, CloudError, NodeRoute, RoutesChange, remove_routes, update_routes};
use kubeon_envtest::{CloudRoute, FakeCloud};

const TABLE: &str = "rtb-1";

fn settings(cloud: &FakeCloud, provider: CloudProvider) -> CloudRoutes {
    CloudRoutes {
        provider,
        region: "ap-test".parse().unwrap(),
        route_tables: [TABLE.parse().unwrap()].into(),
        api: Some(cloud.url().parse().unwrap()),
    }
}

fn account(secret_key: &str) -> CloudAccount {
    CloudAccount { secret_id: FakeCloud::SECRET_ID.to_owned(), secret_key: secret_key.into() }
}

fn demo() -> ClusterName {
    "demo".parse().unwrap()
}

fn nodes(numbers: &[u8]) -> Vec<NodeRoute> {
    let node = |number: &u8| NodeRoute {
        node: format!("n{number}"),
        pods: format!("10.96.{number}.0/24").parse().unwrap(),
        address: format!("10.0.0.{number}").parse().unwrap(),
    };
    numbers.iter().map(node).collect()
}

fn update(settings: &CloudRoutes, numbers: &[u8]) -> Result<RoutesChange, CloudError> {
    update_routes(settings, &account(FakeCloud::SECRET_KEY), &demo(), &nodes(numbers))
}

fn change(added: usize, removed: usize, kept: usize) -> RoutesChange {
    RoutesChange { added, removed, kept }
}

/// What is done with both providers; `next_hop` is how each names the first node.
fn routes_follow_the_nodes(provider: CloudProvider, next_hop: &str) {
    let cloud = FakeCloud::start(&[TABLE]).unwrap();
    let settings = settings(&cloud, provider);
    let other = CloudRoute {
        destination: "0.0.0.0/0".to_owned(),
        next_hop: "nat-1".to_owned(),
        description: String::new(),
    };
    cloud.insert(TABLE, other.clone());
    assert_eq!(update(&settings, &[1, 2, 3]).unwrap(), change(3, 0, 0));
    let first = CloudRoute {
        destination: "10.96.1.0/24".to_owned(),
        next_hop: next_hop.to_owned(),
        description: "Routing rules set by kubeon for vpc, cluster: demo, node: n1".to_owned(),
    };
    assert_eq!(cloud.routes(TABLE)[..2], [other.clone(), first]);
    let before = cloud.actions().len();
    assert_eq!(update(&settings, &[1, 2, 3]).unwrap(), change(0, 0, 3));
    let asked = cloud.actions();
    assert!(asked[before..].iter().all(|action| action.starts_with("Describe")), "{asked:?}");
    assert_eq!(update(&settings, &[1, 4]).unwrap(), change(1, 2, 1));
    let account = account(FakeCloud::SECRET_KEY);
    assert_eq!(remove_routes(&settings, &account, &demo()).unwrap(), change(0, 2, 0));
    assert_eq!(cloud.routes(TABLE), [other]);
}

#[test]
fn routes_follow_the_nodes_at_tencent() {
    routes_follow_the_nodes(CloudProvider::Tencent, "10.0.0.1");
}

#[test]
fn routes_follow_the_nodes_at_aliyun() {
    routes_follow_the_nodes(CloudProvider::Aliyun, "i-10.0.0.1");
}

/// More routes than one request or one page may have.
#[test]
fn many_routes_are_written_in_several_requests() {
    for provider in [CloudProvider::Tencent, CloudProvider::Aliyun] {
        let cloud = FakeCloud::start(&[TABLE]).unwrap();
        let settings = settings(&cloud, provider);
        let all: Vec<u8> = (1..=120).collect();
        assert_eq!(update(&settings, &all).unwrap(), change(120, 0, 0));
        assert_eq!(update(&settings, &all).unwrap(), change(0, 0, 120));
        assert_eq!(update(&settings, &[]).unwrap(), change(0, 120, 0));
    }
}

#[test]
fn a_wrong_key_is_refused_at_once() {
    for provider in [CloudProvider::Tencent, CloudProvider::Aliyun] {
        let cloud = FakeCloud::start(&[TABLE]).unwrap();
        let settings = settings(&cloud, provider);
        let refused = update_routes(&settings, &account("another key"), &demo(), &nodes(&[1])).unwrap_err();
        assert!(refused.to_string().contains("SignatureDoesNotMatch"), "{refused}");
        assert!(!refused.to_string().contains("another key"), "{refused}");
        assert!(cloud.routes(TABLE).is_empty() && cloud.actions().is_empty());
    }
}

#[test]
fn a_failure_that_passes_is_repeated_and_another_is_not() {
    let codes = [
        (CloudProvider::Tencent, "RequestLimitExceeded", "UnauthorizedOperation"),
        (CloudProvider::Aliyun, "Throttling.User", "Forbidden.RAM"),
    ];
    for (provider, passing, lasting) in codes {
        let cloud = FakeCloud::start(&[TABLE]).unwrap();
        let settings = settings(&cloud, provider);
        cloud.fail_next(passing);
        assert_eq!(update(&settings, &[1]).unwrap(), change(1, 0, 0));
        let before = cloud.actions().len();
        cloud.fail_next(lasting);
        let refused = update(&settings, &[1, 2]).unwrap_err();
        assert!(refused.to_string().contains(lasting), "{refused}");
        assert_eq!((cloud.actions().len() - before, cloud.routes(TABLE).len()), (1, 1));
    }
}

#[test]
fn a_foreign_route_in_the_way_is_named_before_anything_is_changed() {
    let cloud = FakeCloud::start(&[TABLE, "rtb-2"]).unwrap();
    let mut settings = settings(&cloud, CloudProvider::Tencent);
    settings.route_tables.insert("rtb-2".parse().unwrap());
    let foreign = CloudRoute {
        destination: "10.96.2.0/24".to_owned(),
        next_hop: "10.0.9.9".to_owned(),
        description: "of another team".to_owned(),
    };
    cloud.insert("rtb-2", foreign.clone());
    let refused = update(&settings, &[1, 2]).unwrap_err();
    assert!(matches!(&refused, CloudError::Foreign { table, .. } if table == "rtb-2"), "{refused}");
    assert_eq!((cloud.routes(TABLE), cloud.routes("rtb-2")), (Vec::new(), vec![foreign]));
}

#[test]
fn an_unknown_table_and_an_api_that_is_off_are_errors() {
    let cloud = FakeCloud::start(&["rtb-9"]).unwrap();
    let refused = update(&settings(&cloud, CloudProvider::Tencent), &[1]).unwrap_err();
    assert!(refused.to_string().contains("ResourceNotFound: no route table rtb-1"), "{refused}");
    let with_path = CloudRoutes {
        api: Some(format!("{}/api", cloud.url()).parse().unwrap()),
        ..settings(&cloud, CloudProvider::Aliyun)
    };
    let refused = update(&with_path, &[1]).unwrap_err();
    assert!(refused.to_string().contains("must have no path"), "{refused}");
}
