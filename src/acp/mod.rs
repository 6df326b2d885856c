//! The Agent Client Protocol: messages become questions to sessions, and what sessions say
//! becomes messages. The connection is one task; it never waits for anything but its next event.

mod caps;
mod connection;
mod dispatch;
mod error;
mod extensions;
mod from_wire;
mod handlers;
mod inquire;
mod kept;
mod peer;
mod reply;
mod servers;
mod sessions;
mod terminals;
mod to_wire;
mod wire;

#[cfg(test)]
mod tests;

pub use connection::serve;
