//! The acceptance cases of the contracts, on a simulated API server.

mod approval;
mod back;
mod credentials;
mod deaths;
mod events;
mod kstatus;
mod kubernetes_cluster;
mod lifecycle;
mod lost_pods;
mod masters_and_versions;
mod observed_health;
mod ours;
mod pauses;
mod persisted;
mod previous;
mod random;
mod renewal;
mod rollbacks;
mod same;
mod skip_hosts;
mod snapshots;
mod stored_logs;
mod suspended_jobs;
mod timeouts;
mod waiting;
mod written;
