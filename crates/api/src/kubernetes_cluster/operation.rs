//! The words of the older clients: the command channel in an annotation, and the phase in the status.

use crate::words::words;

words! {
    /// The value of the annotation [`crate::labels::OPERATION`]: what a client asks for, then how it went.
    Operation {
        /// Make the cluster.
        Creating = "creating",
        /// Making it failed.
        CreateFailed = "create-failed",
        /// It was made.
        CreateFinished = "create-finished",
        /// Add workers.
        ScalingUp = "scaling-up",
        /// Adding failed.
        ScaleUpFailed = "scale-up-failed",
        /// They were added.
        ScaleUpFinished = "scale-up-finished",
        /// Remove workers.
        ScalingDown = "scaling-down",
        /// Removing failed.
        ScaleDownFailed = "scale-down-failed",
        /// They were removed.
        ScaleDownFinished = "scale-down-finished",
        /// Take the cluster down.
        Terminating = "terminating",
        /// Taking it down failed.
        TerminateFailed = "terminate-failed",
        /// It was taken down.
        TerminateFinished = "terminate-finished",
        /// Change version or configuration.
        Updating = "updating",
        /// Changing failed.
        UpdateFailed = "update-failed",
        /// It was changed.
        UpdateFinished = "update-finished",
        /// Go back.
        Rollbacking = "rollbacking",
        /// Going back failed.
        RollbackFailed = "rollback-failed",
        /// It went back.
        RollbackFinished = "rollback-finished",
    }

    /// Where a cluster stands. An object that nobody has looked at yet has no phase.
    Phase {
        /// Its hosts are being checked; none has been changed.
        Prechecking = "Prechecking",
        /// It is being made.
        Creating = "Creating",
        /// Hosts are being added or removed.
        Scaling = "Scaling",
        /// The cluster matches its declaration.
        Running = "Running",
        /// The last operation failed; `reason` says why.
        Failed = "Failed",
        /// It is being taken down.
        Terminating = "Terminating",
    }
}
