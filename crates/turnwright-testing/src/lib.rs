//! The test client, the models and the servers that the integration tests share.
//!
//! [`TestAgent`] speaks ACP with an agent that a [`Transport`] has started: the program with real pipes
//! ([`ChildAgent`]), or the same code on a thread of the test ([`ThreadAgent`]). A test binary names its
//! transport once, in an alias of [`TestAgent`]; the tests are the same for both.
#![expect(clippy::disallowed_methods, reason = "the bans apply to the agent; tests are its client")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    reason = "a panic is how a test fails"
)]

mod agent;
mod builder;
pub mod cancellation;
pub mod cards;
pub mod command_lines;
pub mod hosted_server;
pub mod mcp_http_stub;
pub mod model_failures;
pub mod process_report;
pub mod process_waits;
mod programs;
mod protocol;
#[cfg(unix)]
pub mod pseudo_terminal;
pub mod questions;
pub mod raw_server;
mod replies;
pub mod schema;
pub mod scripted_model;
pub mod session_requests;
pub mod socket_clients;
pub mod stored_changes;
mod temporary_folder;
mod transcript;
mod translator;
mod transport;
pub mod unsaved_buffers;
mod waits;

pub use agent::TestAgent;
pub use builder::TestAgentBuilder;
pub use process_waits::LIMIT;
#[cfg(unix)]
pub use programs::{copy_program, write_program};
pub use programs::{example_program, lacks_under_wine};
pub use raw_server::closed_port;
pub use replies::{calls, prompt, runs, says, writes};
pub use temporary_folder::temporary_folder;
pub use transport::child::{ChildAgent, Program};
pub use transport::thread::{InProcessServer, ThreadAgent};
pub use transport::{AgentPipes, Launch, Transport, read_messages};
pub use waits::{assert_gone, basic_variables, eventually, is_alive, run_mark};
