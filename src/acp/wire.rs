//! The wire types, by one name for the rest of `acp`, and the table of the methods that we serve.

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) use agent_client_protocol_schema::v1 as schema;

/// A request that a client can make.
pub(super) trait Method {
    /// Its name on the wire.
    const NAME: &'static str;
    /// What comes.
    type Params: DeserializeOwned;
    /// What goes.
    type Result: Serialize;
}

macro_rules! methods {
    ($($name:ident $method:literal ($params:ty) -> $result:ty;)*) => {
        $(
            #[derive(Debug)]
            pub(super) struct $name;

            impl Method for $name {
                const NAME: &'static str = $method;
                type Params = $params;
                type Result = $result;
            }
        )*

    };
}

methods! {
    Initialize "initialize" (serde_json::Value) -> schema::InitializeResponse;
    Authenticate "authenticate" (schema::AuthenticateRequest) -> schema::AuthenticateResponse;
    NewSession "session/new" (schema::NewSessionRequest) -> schema::NewSessionResponse;
    LoadSession "session/load" (serde_json::Value) -> schema::LoadSessionResponse;
    ResumeSession "session/resume" (schema::ResumeSessionRequest) -> schema::ResumeSessionResponse;
    CloseSession "session/close" (schema::CloseSessionRequest) -> schema::CloseSessionResponse;
    History "_turnwright/history" (super::extensions::HistoryRequest) -> serde_json::Value;
    ForkSession "session/fork" (schema::ForkSessionRequest) -> schema::ForkSessionResponse;
    ListSessions "session/list" (schema::ListSessionsRequest) -> schema::ListSessionsResponse;
    DeleteSession "session/delete" (schema::DeleteSessionRequest) -> schema::DeleteSessionResponse;
    ArchiveSession "session/archive"
        (schema::ArchiveSessionRequest) -> schema::ArchiveSessionResponse;
    UnarchiveSession "session/unarchive"
        (schema::UnarchiveSessionRequest) -> schema::UnarchiveSessionResponse;
    StatusOfSession "session/status"
        (schema::SessionStatusRequest) -> schema::SessionStatusResponse;
    SetTitle "session/set_title"
        (schema::SetSessionTitleRequest) -> schema::SetSessionTitleResponse;
    Prompt "session/prompt" (schema::PromptRequest) -> schema::PromptResponse;
    SetOption "session/set_config_option"
        (schema::SetSessionConfigOptionRequest) -> schema::SetSessionConfigOptionResponse;
    SetMode "session/set_mode" (schema::SetSessionModeRequest) -> schema::SetSessionModeResponse;
}
