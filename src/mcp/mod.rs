//! Servers of the Model Context Protocol, and what they lend to a session. `rmcp` speaks the
//! protocol; here is when a server runs, what becomes of it, and what its tools are to a turn.
//!
//!   spec     a server as somebody has asked for it
//!   hub      all servers of the process; sessions that want the same one share it
//!   server   one server: a task that connects, lists, connects again, and ends it
//!   link     one connection to it, by a child process or by HTTP
//!   http     the HTTP client below the protocol
//!   stream   … and the events that come of it
//!   logins   the logins at servers on HTTP; `login` gets one
//!   start    what is run for it, and what that is kept to
//!   program  that program, as it runs
//!   sieve    what it prints → the lines that are messages
//!   line     … and what such a line is
//!   words    the last that it has said to people
//!   fleet    the servers of one session → its [`crate::tools::Lent`]
//!   list     the tools of a server, page by page
//!   listed   a tool as its server lists it, made ready once
//!   schema   … the schema of its arguments, as the model is told it
//!   check    … and whether a value is what the server's own schema wants
//!   names    what the tools of a session are called
//!   tool     one tool of a server, as a turn sees it
//!   call     one call on its way, with `progress`
//!   content  what the server answers → `shown`: what becomes of it
//!   resources  the resources of a server, by a tool beside its own
//!   prompts  the prompts of servers, as commands that a user can type
//!   pins     what a tool was when it was said yes to
//!   question what the user is shown of a call

mod call;
mod check;
mod content;
mod elicit;
mod fleet;
mod handler;
mod http;
mod hub;
mod line;
mod link;
mod list;
mod listed;
mod login;
mod logins;
mod names;
mod program;
mod resources;
mod progress;
mod schema;
mod prompts;
mod pins;
mod question;
mod server;
mod shown;
mod sieve;
mod spec;
mod start;
mod stream;
mod tool;
mod words;

#[cfg(test)]
mod tests;

pub use fleet::Fleet;
pub use hub::{Ground, Hub};
pub use listed::Listed;
pub use login::{LoginOptions, log_in};
pub use logins::{Login, Logins};
pub use prompts::{Asked, PromptCommand};
pub use server::{Phase, State};
pub use spec::{Choice, Hidden, Limits, Reach, ServerSpec, Source, Walls};
