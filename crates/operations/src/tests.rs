//! The acceptance cases of the contracts, on a world of JSON.

mod back;
mod business;
mod deaths;
mod kept;
mod lifecycle;
mod ours;
mod random;
mod same;
mod timeouts;
mod told;
mod waiting;
mod without;
