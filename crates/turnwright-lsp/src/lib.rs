//! A client of language servers for agents: finds the errors that an edit has caused, the places where a symbol is
//! defined and used, and the edits that rename it. An answer about an earlier text is never used for a later one.
//!
//!   languages    the servers of a session: the one for each file, its start, and the errors that a turn has caused
//!   server       one running server: its start and its end, its documents, and the errors of each text
//!   state        what is known of a server: its open documents, published errors and progress
//!   connection   requests, responses and notifications; `framing` has the frames of messages
//!   process      the process of a server, and the session that it runs in
//!   catalogue    the built-in servers, and those of `.lsp.json`
//!   report       compares errors and reports the new ones
//!   protocol     positions, errors and edits as the protocol defines them

mod catalogue;
mod connection;
mod framing;
mod languages;
mod process;
mod protocol;
mod report;
mod server;
mod state;

pub use catalogue::{LanguageServer, configured_servers, known_servers};
pub use languages::{FileBefore, LanguageServers};
pub use process::{LanguageGate, LanguageSite, find_program};
pub use protocol::FileEdits;
pub use report::{FileReport, counted_errors};
