//! A real kube-apiserver and etcd, and the proxy that disturbs them.

mod api_server;
mod fault_proxy;
mod kubeadm;
