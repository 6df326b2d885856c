//! The JSON-RPC methods that the agent serves, and the schema that the rest of `acp` uses.

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) use agent_client_protocol_schema::v1 as schema;

/// A JSON-RPC method that the agent handles.
pub(super) trait RequestMethod {
    /// The name on the wire.
    const NAME: &'static str;
    type Params: DeserializeOwned;
    type Result: Serialize;
}

/// Defines a type per method: `Type "wire/name" (Params) -> Result;`.
macro_rules! methods {
    ($($name:ident $method:literal ($params:ty) -> $result:ty;)*) => {
        $(
            #[derive(Debug)]
            pub(super) struct $name;

            impl RequestMethod for $name {
                const NAME: &'static str = $method;
                type Params = $params;
                type Result = $result;
            }
        )*
    };
}

pub(super) use methods;

methods! {
    // Any version of the protocol is accepted.
    Initialize "initialize" (serde_json::Value) -> schema::InitializeResponse;
    Authenticate "authenticate" (schema::AuthenticateRequest) -> schema::AuthenticateResponse;
    AuthStatus "auth/status" (schema::AuthStatusRequest) -> schema::AuthStatusResponse;
    ListProviders "providers/list"
        (schema::ListProvidersRequest) -> schema::ListProvidersResponse;
    SetProvider "providers/set" (schema::SetProviderRequest) -> schema::SetProviderResponse;
    DisableProvider "providers/disable"
        (schema::DisableProviderRequest) -> schema::DisableProviderResponse;
    // The MCP servers in these parameters are corrected before they are read.
    NewSession "session/new" (serde_json::Value) -> schema::NewSessionResponse;
    LoadSession "session/load" (serde_json::Value) -> schema::LoadSessionResponse;
    ResumeSession "session/resume" (serde_json::Value) -> schema::ResumeSessionResponse;
    CloseSession "session/close" (schema::CloseSessionRequest) -> schema::CloseSessionResponse;
    ForkSession "session/fork" (serde_json::Value) -> schema::ForkSessionResponse;
    ListSessions "session/list" (schema::ListSessionsRequest) -> schema::ListSessionsResponse;
    DeleteSession "session/delete" (schema::DeleteSessionRequest) -> schema::DeleteSessionResponse;
    ArchiveSession "session/archive"
        (schema::ArchiveSessionRequest) -> schema::ArchiveSessionResponse;
    UnarchiveSession "session/unarchive"
        (schema::UnarchiveSessionRequest) -> schema::UnarchiveSessionResponse;
    GetSessionStatus "session/status"
        (schema::SessionStatusRequest) -> schema::SessionStatusResponse;
    SetSessionTitle "session/set_title"
        (schema::SetSessionTitleRequest) -> schema::SetSessionTitleResponse;
    Prompt "session/prompt" (schema::PromptRequest) -> schema::PromptResponse;
    SetConfigOption "session/set_config_option"
        (schema::SetSessionConfigOptionRequest) -> schema::SetSessionConfigOptionResponse;
    SetMode "session/set_mode" (schema::SetSessionModeRequest) -> schema::SetSessionModeResponse;
    // No longer part of the protocol; older clients use it instead of the option `model`.
    SetModel "session/set_model" (super::handlers::SetModelRequest) -> serde_json::Value;
    // An extension that several agents have: words for the running turn.
    Steer "_session/steering" (super::extensions::SteeringRequest) -> serde_json::Value;
    // An extension of this agent: pages of a session's messages.
    GetMessages "_turnwright/history" (super::extensions::HistoryRequest) -> serde_json::Value;
}
