//! Version 2 of the protocol, for clients that ask for it: its own table of methods, its own encoder and its
//! own [`Client`](turnwright_types::client::Client). Below `acp` nothing knows which version is spoken. What
//! has the same shape in both versions is served by the handlers and types of version 1.

mod cancel;
mod client;
mod diffs;
mod dispatch;
mod encode;
mod initialize;
mod previews;
mod prompts;
mod sessions;
mod wire;

pub(super) use dispatch::dispatch;
pub(super) use prompts::{PromptLedger, follow};
