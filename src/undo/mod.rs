//! File changes of earlier turns go back, and forth again: what is to be done (pure), and doing it.
//! Only what a turn has changed is touched, and only if it is still as that turn left it.

mod apply;
mod diff;
mod ledger;
mod now;
mod plan;

pub use apply::{Outcome, apply};
pub use diff::{Bounds, Side, unified};
pub use ledger::{Ledger, Undone};
pub use now::state;
pub use plan::{Action, Folded, MOST_KEPT, Step, fold, plan, same};

#[cfg(test)]
#[cfg(unix)]
mod tests;
