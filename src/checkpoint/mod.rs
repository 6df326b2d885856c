//! What files were like before a call that may change any of them.

mod git;
pub mod inside;
