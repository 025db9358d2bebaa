//! Process 1 of the Job of an operation.

fn main() {}
