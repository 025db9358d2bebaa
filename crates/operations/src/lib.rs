//! What the meta cluster should look like, as pure functions: from clusters, operations and Jobs to what is to be written.
