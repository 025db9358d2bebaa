//! `kubeon certs observer`, without hosts.

use kubeon_pki::ClusterPki;

use crate::home::Home;

#[test]
fn an_observer_gets_a_kubeconfig_of_its_own_for_every_master() {
    let home = Home::with_cluster_of("t", &["-m", "127.0.2.1", "-m", "127.0.2.2", "-m", "127.0.2.3"]);
    let unfinished = home.kubeon(&["certs", "observer", "t"]);
    unfinished.refuses(&["t has no kubeconfig yet", "kubeon create t"]);
    let state = home.path().join(".kubeon");
    assert!(!state.join("secret/t").exists(), "no keys were made");
    ClusterPki::load_or_create(&state.join("secret/t"), 1).unwrap();
    std::fs::create_dir_all(state.join("conf/cluster")).unwrap();
    std::fs::write(state.join("conf/cluster/t.yaml"), "").unwrap();
    let (first, second) =
        (home.kubeon(&["certs", "observer", "t"]), home.kubeon(&["certs", "observer", "t"]));
    assert_eq!((first.code, second.code), (0, 0), "{first:?}");
    assert_ne!(first.out, second.out, "each one has its own certificate");
    for text in
        ["https://127.0.2.1:6443", "https://127.0.2.2:6443", "https://127.0.2.3:6443", "name: \"t-observer\""]
    {
        assert!(first.out.contains(text), "{text} is missing in {}", first.out);
    }
    assert!(!first.out.contains("t-admin"), "{}", first.out);
    home.kubeon(&["certs", "observer", "nosuch"]).refuses(&["Cluster[nosuch] not exist"]);
}
