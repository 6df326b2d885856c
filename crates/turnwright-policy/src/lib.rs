//! Permission policy for coding agents.
//!
//! [`shell`] parses a command line into the simple commands that a shell would run, and [`permission`] decides
//! whether the effects of a tool call are allowed, denied or need the user's answer.

pub mod permission;
pub mod shell;
