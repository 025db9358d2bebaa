//! The acceptance cases of the contracts, on a world of JSON.

mod business;
mod kept;
mod lifecycle;
mod ours;
mod random;
mod waiting;
