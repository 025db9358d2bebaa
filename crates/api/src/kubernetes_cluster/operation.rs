//! Values that older clients use: commands in an annotation, and the phase in the status.

use crate::words::words;

words! {
    /// The value of the annotation [`crate::labels::OPERATION`]: the command of a client, then the result.
    Operation {
        /// Create the cluster.
        Creating = "creating",
        /// Creating failed.
        CreateFailed = "create-failed",
        /// The cluster was created.
        CreateFinished = "create-finished",
        /// Add hosts.
        ScalingUp = "scaling-up",
        /// Adding failed.
        ScaleUpFailed = "scale-up-failed",
        /// The hosts were added.
        ScaleUpFinished = "scale-up-finished",
        /// Remove hosts.
        ScalingDown = "scaling-down",
        /// Removing failed.
        ScaleDownFailed = "scale-down-failed",
        /// The hosts were removed.
        ScaleDownFinished = "scale-down-finished",
        /// Renew the kubeconfigs in the Secrets, and the certificates whose renewal failed.
        Renewing = "renewing",
        /// Renewing failed.
        RenewFailed = "renew-failed",
        /// The kubeconfigs were renewed.
        RenewFinished = "renew-finished",
        /// Do again what is missing on the hosts.
        Repairing = "repairing",
        /// Repairing failed.
        RepairFailed = "repair-failed",
        /// Nothing is missing on the hosts any more.
        RepairFinished = "repair-finished",
        /// Write a snapshot of etcd to the object store.
        Snapshotting = "snapshotting",
        /// Writing the snapshot failed.
        SnapshotFailed = "snapshot-failed",
        /// The snapshot was written.
        SnapshotFinished = "snapshot-finished",
        /// Remove the cluster.
        Terminating = "terminating",
        /// Removing the cluster failed.
        TerminateFailed = "terminate-failed",
        /// The cluster was removed.
        TerminateFinished = "terminate-finished",
        /// Change the version or settings.
        Updating = "updating",
        /// The change failed.
        UpdateFailed = "update-failed",
        /// The change was applied.
        UpdateFinished = "update-finished",
        /// Return to the snapshot of an older version.
        Rollbacking = "rollbacking",
        /// Rolling back failed.
        RollbackFailed = "rollback-failed",
        /// The cluster is as in the snapshot.
        RollbackFinished = "rollback-finished",
    }

    /// The phase of a cluster. An object that the operator has not processed yet has no phase.
    Phase {
        /// The hosts are being checked. No host has been changed.
        Prechecking = "Prechecking",
        /// The cluster is being created.
        Creating = "Creating",
        /// Hosts are being added or removed.
        Scaling = "Scaling",
        /// The hosts get again what is missing, and kubeconfigs and certificates are renewed.
        Repairing = "Repairing",
        /// The version or settings are being changed.
        Updating = "Updating",
        /// A snapshot of etcd is being written.
        Snapshotting = "Snapshotting",
        /// The cluster matches its declaration.
        Running = "Running",
        /// The last operation failed; `reason` says why.
        Failed = "Failed",
        /// The cluster is being removed.
        Terminating = "Terminating",
    }
}
