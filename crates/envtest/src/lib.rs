//! A real etcd and a real kube-apiserver on loopback, and a proxy before them that fails on demand. For tests and benchmarks.
