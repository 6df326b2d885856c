//! The methods of version 2.

use super::wire::{
    CancelTerminal, CancelToolCall, CloseSessionV2, ForkSessionV2, InitializeV2, LogIn, LogOut,
    NewSessionV2, PromptV2, ResumeSessionV2, SetConfigOptionV2,
};
use super::{cancel, initialize, prompts, sessions};
use crate::acp::dispatch::Router;
use crate::acp::wire::{
    ArchiveSession, DeleteSession, GetMessages, GetSessionStatus, ListSessions, SetSessionTitle,
    Steer, UnarchiveSession,
};
use crate::acp::{extensions, saved_sessions};

/// Routes a request to its handler. The methods from `ListSessions` on have the same parameters and results in
/// version 1.
pub(in crate::acp) fn dispatch(router: Router<'_>) {
    router
        .on::<InitializeV2>(initialize::initialize)
        .on::<LogIn>(initialize::log_in)
        .on::<LogOut>(initialize::log_out)
        .on::<NewSessionV2>(sessions::new)
        .on::<ResumeSessionV2>(sessions::resume)
        .on::<ForkSessionV2>(sessions::fork)
        .on::<CloseSessionV2>(sessions::close)
        .on::<PromptV2>(prompts::prompt)
        .on::<CancelToolCall>(cancel::tool_call)
        .on::<CancelTerminal>(cancel::terminal)
        .on::<SetConfigOptionV2>(sessions::set_option)
        .on::<ListSessions>(saved_sessions::list)
        .on::<DeleteSession>(saved_sessions::delete)
        .on::<ArchiveSession>(saved_sessions::archive)
        .on::<UnarchiveSession>(saved_sessions::unarchive)
        .on::<GetSessionStatus>(saved_sessions::status)
        .on::<SetSessionTitle>(saved_sessions::set_title)
        .on::<Steer>(extensions::steer)
        .on::<GetMessages>(extensions::history)
        .finish();
}
