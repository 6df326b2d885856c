//! Version 2 of the protocol, for clients that ask for it: its own encoder and its own
//! [`Client`](turnwright_types::client::Client). Its methods stand in `acp::methods` beside those of version 1.
//! Below `acp` nothing knows which version is spoken. Parameters are read by hand or with types of version 1, and
//! results are written by hand: the types of the schema crate for version 2 would cost hundreds of kilobytes.

mod client;
mod diffs;
mod encode;
mod prompts;

pub(super) use client::AcpClientV2;
pub(super) use encode::{commands, send_update, settings};
pub(super) use prompts::{PromptLedger, follow};
