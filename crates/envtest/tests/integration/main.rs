//! Tests of a real kube-apiserver and etcd, and of the proxy that injects faults.

mod api_server;
mod fault_proxy;
mod kubeadm;
