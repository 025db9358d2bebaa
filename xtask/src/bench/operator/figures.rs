//! Earlier results of the closest peer, printed for comparison.

/// kubean-operator at 07f3c6c1f, measured on another day: a real kube-apiserver and etcd, 2 cores, loopback.
const KUBEAN: &[(&str, &str)] = &[
    ("1 cluster created", "reconciled after 0.5 s"),
    ("10 clusters at once", "12.1 s; idle then 2.4 mCPU, 55 MiB"),
    ("50 clusters", "69.3 s"),
    ("100 clusters, 90 of them new", "126.5 s, 0.72 CPU s"),
    ("idle at 10 clusters", "24 requests a minute and cluster, for ever"),
    ("idle at 50 and 100 clusters", "5 requests a second, the limit of its client"),
    ("1 operation", "created → Job 3.1 s, Job done → status 0.8 s, about 57 requests"),
    ("10 operations, 100 clusters", "created → Job 56.9 s (p50), Job done → status 5.7 s (p50)"),
    ("50 operations, 50 clusters", "created → Job 263 s (p50), 288 s (max); Job done → status 48.7 s (p50)"),
    ("50 operations, 50 clusters", "336 s in all, 2.41 CPU s, 60.6 MiB"),
];

/// Prints the results.
pub(super) fn print() {
    crate::terminal::say(
        "\n### kubean-operator, earlier results (to measure it in the same run, pass its folder with --peer)\n",
    );
    crate::terminal::say("| phase | result |\n|---|---|");
    for (phase, result) in KUBEAN {
        crate::terminal::say(&format!("| {phase} | {result} |"));
    }
}
