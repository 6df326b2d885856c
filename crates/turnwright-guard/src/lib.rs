//! Bounds what the commands and MCP servers of a coding agent may reach, and notices what they have changed.
//!
//! * [`command`] finds out what a command line would touch, so that it can be judged before it runs.
//! * [`confine`] makes the sandbox profile and the environment of a command that was allowed.
//! * [`ConfinementGuard`] watches the protected places while commands and servers run, undoes changes there that nobody
//!   has allowed, and says which limit of the sandbox a failed command has met.
//! * [`signing`] lets git sign in a command that reaches no key.
//! * [`command_network`] connects the commands of a session with each other, and with nothing else.

pub mod command;
pub mod command_network;
mod confinement;
mod obeyed_files;
mod protected_snapshot;
mod repository;
mod restricted_files;
pub mod signing;
mod watch;

pub use confinement::linked_files::note_about_other_names;
pub use confinement::sandbox_profile::server_profile;
pub use confinement::{
    CommandConfinement, CommandSite, ConfinementSettings, confine, makes_environments,
};
pub use obeyed_files::{behind_links, named_programs, read_by_direnv};
pub use repository::obeyed_by_git;
pub use turnwright_proxy::{CommandHosts, HostList, HostQuestion, HostVerdict};
pub use watch::server_watch::ServerWatch;
pub use watch::{
    ChangingCall, ConfinementGuard, ReachedLimit, RemoteCallGuard, report_unfinished, run_guarded,
};
