//! The wheel: looks, plans, checks the plan, applies it. The only way from a wish to a host, for every door.
//!
//! ```text
//!          ┌─────────────── one turn ───────────────┐
//!   hosts ─► observe ─► plan ─► lint ─► apply ─► Reconciled { snapshot, plan, outcome }
//!            reads      pure    pure    writes      │
//!              ▲                                    │ only when it may help: until_settled
//!              └────────────────────────────────────┘
//! ```
//!
//! Nothing is decided here but when to stop turning. What to do is `plan`'s, how to do it is `apply`'s.

mod reconciler;

pub use reconciler::{Planned, ReconcileError, Reconciled, Reconciler, another_may_help};
