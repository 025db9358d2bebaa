//! Inventories and variables of kubespray, read as the declaration of a cluster.
