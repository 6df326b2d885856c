//! The methods of version 2 that differ from those of version 1. Their parameters are read by hand or with
//! types of version 1, and their results are written by hand: the types of the schema crate for version 2
//! would cost hundreds of kilobytes.

use serde_json::Value;

use crate::acp::wire::{RequestMethod, methods};

methods! {
    InitializeV2 "initialize" (Value) -> Value;
    LogIn "auth/login" (super::initialize::LoginRequest) -> Value;
    LogOut "auth/logout" (Value) -> Value;
    NewSessionV2 "session/new" (Value) -> Value;
    ResumeSessionV2 "session/resume" (Value) -> Value;
    ForkSessionV2 "session/fork" (Value) -> Value;
    CloseSessionV2 "session/close" (crate::acp::wire::schema::CloseSessionRequest) -> Value;
    PromptV2 "session/prompt" (crate::acp::wire::schema::PromptRequest) -> Value;
    CancelToolCall "tool_call/cancel" (super::cancel::CancelToolCallRequest) -> Value;
    CancelTerminal "terminal/cancel" (super::cancel::CancelTerminalRequest) -> Value;
    SetConfigOptionV2 "session/set_config_option" (super::sessions::SetOptionRequest) -> Value;
}
