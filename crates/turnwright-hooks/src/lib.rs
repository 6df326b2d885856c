//! Hooks: programs of the user or of a project that run at certain moments of a session, in the format of Claude Code.
//!
//! * [`read_handlers`] reads a hook file. What is wrong in it is reported, and the rest works.
//! * [`HookedTool`] tells what a tool call is in the words of Claude Code, and translates a changed input back.
//! * [`HookSet::run`] runs the handlers of an [`Occasion`], each in a process group of its own, with bounded output and
//!   time, and makes one [`HookVerdict`] of what they answer.
//!
//! A verdict permits nothing by itself. The files of the project that a handler names ([`Handler::scripts`]) are
//! compared before each run: one that has changed since the session began does not run.

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
pub use output::HookDecision;
pub use run::HookSite;
pub use scripts::Script;
pub use set::{HookSet, HookVerdict, Occasion, SessionFacts};
pub use translate::{HookedTool, ToolUse, TouchedFile, tool_response};
