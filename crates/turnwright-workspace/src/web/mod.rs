//! Pages of the network: which may be reached (`guard`), getting one (`fetch`), and turning it
//! into text that a model can read (`page`, `clean`). Knows nothing of tools and permissions.

mod clean;
mod fetch;
mod guard;
mod page;
mod resolve;
mod tag;

#[cfg(test)]
mod tests;

pub use clean::floor;
pub use fetch::{FetchError, Fetched, Limits, Web};
pub use guard::{effect_host, parse};
pub use page::{Page, Pages, unfold, wrap};
