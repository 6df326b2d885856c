//! The methods that a client may call. Each has its file, or shares one with a few that belong together, and
//! version 2 of a method stands beside version 1. The two tables list all of them.

mod auth_logout;
pub(super) mod auth_status;
mod authenticate;
mod cancel;
mod history;
pub(super) mod initialize;
mod mcp_message;
mod providers;
mod session_close;
mod session_delete_archive;
mod session_fork;
mod session_list;
mod session_load_resume;
mod session_new;
pub(super) mod session_prompt;
mod session_set_config_option;
mod session_set_mode_model;
mod session_set_title;
mod session_status;
mod session_steering;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::connection::Connection;
use super::linked_servers;
use super::responder::Responder;
use super::router::RequestRoute;
use turnwright_rpc::Params;

/// A request that a client may send.
pub(super) trait RequestMethod: Sized + 'static {
    /// The name on the wire.
    const NAME: &'static str;
    type Params: DeserializeOwned;
    type Result: Serialize;

    /// Handles a request without waiting. What takes time is left to a task or to the session, which gets
    /// `reply`.
    fn handle(connection: &mut Connection, params: Self::Params, reply: Responder<Self>);
}

/// The requests, each with the versions of the protocol that have it.
pub(super) static REQUESTS: &[RequestRoute] = &[
    RequestRoute::v1::<initialize::Initialize>(),
    RequestRoute::v2::<initialize::InitializeV2>(),
    RequestRoute::v1::<authenticate::Authenticate>(),
    RequestRoute::v2::<authenticate::LogIn>(),
    RequestRoute::v2::<auth_logout::LogOut>(),
    RequestRoute::v1::<auth_status::AuthStatus>(),
    RequestRoute::v1::<providers::ListProviders>(),
    RequestRoute::v1::<providers::SetProvider>(),
    RequestRoute::v1::<providers::DisableProvider>(),
    RequestRoute::v1::<session_new::NewSession>(),
    RequestRoute::v2::<session_new::NewSessionV2>(),
    RequestRoute::v1::<session_load_resume::LoadSession>(),
    RequestRoute::v1::<session_load_resume::ResumeSession>(),
    RequestRoute::v2::<session_load_resume::ResumeSessionV2>(),
    RequestRoute::v1::<session_fork::ForkSession>(),
    RequestRoute::v2::<session_fork::ForkSessionV2>(),
    RequestRoute::v1::<session_close::CloseSession>(),
    RequestRoute::v2::<session_close::CloseSessionV2>(),
    RequestRoute::both::<session_list::ListSessions>(),
    RequestRoute::both::<session_delete_archive::DeleteSession>(),
    RequestRoute::both::<session_delete_archive::ArchiveSession>(),
    RequestRoute::both::<session_delete_archive::UnarchiveSession>(),
    RequestRoute::both::<session_status::GetSessionStatus>(),
    RequestRoute::both::<session_set_title::SetSessionTitle>(),
    RequestRoute::v1::<session_prompt::Prompt>(),
    RequestRoute::v2::<session_prompt::PromptV2>(),
    RequestRoute::v2::<cancel::CancelToolCall>(),
    RequestRoute::v2::<cancel::CancelTerminal>(),
    RequestRoute::v1::<session_set_mode_model::SetMode>(),
    RequestRoute::v1::<session_set_mode_model::SetModel>(),
    RequestRoute::v1::<session_set_config_option::SetConfigOption>(),
    RequestRoute::v2::<session_set_config_option::SetConfigOptionV2>(),
    RequestRoute::both::<session_steering::Steer>(),
    RequestRoute::both::<history::GetMessages>(),
];

type NotificationHandler = fn(&mut Connection, &Params);

/// The notifications of both versions.
pub(super) static NOTIFICATIONS: &[(&str, NotificationHandler)] = &[
    ("session/cancel", cancel::session),
    ("$/cancel_request", cancel::request),
    (linked_servers::METHOD, mcp_message::deliver),
];
