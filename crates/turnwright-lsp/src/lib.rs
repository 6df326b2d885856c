//! A client of language servers for agents: which errors an edit has made, where a symbol is defined and used, and the
//! edits that rename it. Nothing that a server said about an earlier text is ever said of a later one.
//!
//!   languages    the servers of a session: which one is for a file, when it starts, what a turn has done to its files
//!   source       what is asked of a server, as a trait: an editor's servers can stand in the place of ours
//!   server       one running server: its beginning and its end, its documents, and which errors are of which text
//!   connection   requests, responses and notifications; `framing` has the frames of messages
//!   process      its process, in the sandbox
//!   catalogue    the servers that are known, and those of `.lsp.json`
//!   report       compares errors, and says what is new
//!   protocol     positions, errors and edits as the protocol has them

mod catalogue;
mod connection;
mod framing;
mod languages;
mod process;
mod protocol;
mod report;
mod server;
mod source;

pub use catalogue::{LanguageServer, configured_servers, known_servers};
pub use languages::{LanguageGate, LanguageServers, LanguageSite};
pub use process::find_program;
pub use protocol::{Encoding, FileEdits, Problem};
pub use report::{FileReport, Finding};
pub use source::{DiagnosticSource, FileEvent, ShownText};
