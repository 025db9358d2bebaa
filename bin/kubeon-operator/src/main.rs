//! The operator: raises business clusters from a meta cluster.

fn main() {}
