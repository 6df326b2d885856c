//! The methods that a client may call. Each has its file, or shares one with a few that belong together, and
//! version 2 of a method stands beside version 1. The two tables list all of them.

#![expect(clippy::needless_pass_by_value, reason = "each handler owns its parameters")]

pub(super) mod auth_status;
mod authenticate;
mod cancel;
mod history;
mod initialize;
mod providers;
mod session_close;
mod session_delete_archive;
mod session_list;
mod session_open;
pub(super) mod session_prompt;
mod session_set_config_option;
mod session_set_mode_model;
mod session_set_title;
mod session_status;
mod session_steering;

use super::connection::Connection;
use super::linked_servers;
use super::router::{RequestRoute, both, v1, v2};
use turnwright_rpc::Params;

/// The name of the method that begins a connection.
pub(super) const INITIALIZE: &str = "initialize";

/// The name of the method that ends a turn.
const CANCEL: &str = "session/cancel";

/// The requests, each with the versions of the protocol that have it.
pub(super) static REQUESTS: &[RequestRoute] = &[
    v1(INITIALIZE, |call| call.serve(initialize::initialize)),
    v2(INITIALIZE, |call| call.serve(initialize::initialize_v2)),
    v1("authenticate", |call| call.serve(authenticate::authenticate)),
    v2("auth/login", |call| call.serve(authenticate::log_in)),
    v2("auth/logout", |call| call.serve(authenticate::log_out)),
    v1("auth/status", |call| call.serve(auth_status::auth_status)),
    v1("providers/list", |call| call.serve(providers::list_providers)),
    v1("providers/set", |call| call.serve(providers::set_provider)),
    v1("providers/disable", |call| call.serve(providers::disable_provider)),
    v1("session/new", |call| call.serve_opening(session_open::new_session)),
    v2("session/new", |call| call.serve_opening(session_open::new_session_v2)),
    v1("session/load", |call| call.serve_opening(session_open::load_session)),
    v1("session/resume", |call| call.serve_opening(session_open::resume_session)),
    v2("session/resume", |call| call.serve_opening(session_open::resume_session_v2)),
    v1("session/fork", |call| call.serve_opening(session_open::fork_session)),
    v2("session/fork", |call| call.serve_opening(session_open::fork_session_v2)),
    both("session/options", |call| call.serve(session_open::find_options)),
    v1("session/close", |call| call.serve(session_close::close_session)),
    v2("session/close", |call| call.serve(session_close::close_session_v2)),
    both("session/list", |call| call.serve(session_list::list_sessions)),
    both("session/delete", |call| call.serve(session_delete_archive::delete_session)),
    both("session/archive", |call| call.serve(session_delete_archive::archive_session)),
    both("session/unarchive", |call| call.serve(session_delete_archive::unarchive_session)),
    both("session/status", |call| call.serve(session_status::get_session_status)),
    both("session/set_title", |call| call.serve(session_set_title::set_session_title)),
    v1(session_prompt::METHOD, |call| call.serve(session_prompt::prompt)),
    v2(session_prompt::METHOD, |call| call.serve(session_prompt::prompt_v2)),
    both(CANCEL, |call| call.serve(cancel::session_by_request)),
    v2("tool_call/cancel", |call| call.serve(cancel::cancel_tool_call)),
    v2("terminal/cancel", |call| call.serve(cancel::cancel_terminal)),
    v1("session/set_mode", |call| call.serve(session_set_mode_model::set_mode)),
    v1("session/set_model", |call| call.serve(session_set_mode_model::set_model)),
    v1("session/set_config_option", |call| call.serve(session_set_config_option::set_option)),
    v2("session/set_config_option", |call| call.serve(session_set_config_option::set_option_v2)),
    both(history::METHOD, |call| call.serve(history::get_messages)),
    both(session_steering::METHOD, |call| call.serve(session_steering::steer)),
];

/// The requests that are possible in the session of a helper.
pub(super) static FOR_HELPERS: &[&str] = &["session/status", history::METHOD, CANCEL];

type NotificationHandler = fn(&mut Connection, &Params);

/// The notifications of both versions.
pub(super) static NOTIFICATIONS: &[(&str, NotificationHandler)] = &[
    (CANCEL, cancel::session),
    ("$/cancel_request", cancel::request),
    // From a server that runs within the client.
    (linked_servers::METHOD, |connection, params| connection.linked_requests.deliver(params)),
];
