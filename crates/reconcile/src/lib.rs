//! The reconcile loop: observe, plan, check the plan, apply. Every command changes hosts through it. The
//! tests that kill a run after each effect use the same loop.
//!
//! ```text
//!          ┌─────────────── one reconcile ───────────────┐
//!   hosts ─► observe ─► plan ─► lint ─► pre-apply hook ─► apply ─► Reconciled { snapshot, plan, outcome }
//!            reads      pure    pure    caller           writes         │
//!              ▲                                                        │ if the plan continues, or a retry may help (retry.rs)
//!              └────────────────────────────────────────────────────────┘
//! ```
//!
//! This crate decides only when to reconcile again. `plan` decides what to do, `apply` how to do it.

mod hooks;
mod planned;
mod reconciler;
mod retry;

pub use hooks::{ReconcileHooks, Silent};
pub use planned::{Planned, ReconcileError};
pub use reconciler::{MAX_ATTEMPTS, Reconciled, Reconciler};
