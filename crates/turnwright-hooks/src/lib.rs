//! Hooks: programs of the user or of a project that run at certain moments of a session, in the format of Claude Code.
//!
//! * [`read_handlers`] reads a hook file. Faulty entries are reported, and the others still work.
//! * [`HookedTool`] describes a tool call in the terms of Claude Code, and translates a changed input back.
//! * [`HookSet::choose`] finds the handlers for an [`Occasion`].
//! * [`run_handlers`] runs them, each in its own process group, with bounded output and time, and combines their
//!   replies into one [`HookVerdict`].
//!
//! A verdict permits nothing by itself. The project files that a handler names ([`Handler::scripts`]) are compared
//! before each run: if one of them has changed since the hook file was read, the handler does not run.

mod event;
mod handler;
mod matcher;
mod output;
mod run;
mod scripts;
mod set;
mod translate;

pub use event::HookEvent;
pub use handler::{Handler, HookScope, read_handlers};
pub use output::{HookDecision, HookVerdict};
pub use run::{HookSandbox, HookSite};
pub use scripts::Script;
pub use set::{HookSet, Occasion, run_handlers};
pub use translate::{HookedTool, ToolUse, tool_response};
