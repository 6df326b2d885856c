//! `authenticate`, which version 2 calls `auth/login`: the client chooses an auth method. Only version 2 has
//! `auth/logout`, and only version 1 the unstable `auth/status` and the notification `auth/status_update`. Accounts are
//! read from files, so `auth/status` is answered from a task.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::acp::capabilities;
use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{
    AuthAccount, AuthState, AuthStatusRequest, AuthStatusResponse, AuthStatusUpdateNotification,
    AuthenticateRequest, AuthenticateResponse,
};
use crate::completion::Completion;
use crate::session::SessionHost;
use tokio::task::spawn_blocking;
use turnwright_config::{AccountStatus, SignIn};
use turnwright_rpc::Peer;

pub(super) fn authenticate(
    connection: &mut Connection,
    params: AuthenticateRequest,
    reply: Responder<AuthenticateResponse>,
) {
    let peer = connection.peer.clone();
    choose(connection, &params, Some(peer), reply.done(|()| AuthenticateResponse::new()));
}

/// The parameters are those of version 1.
pub(super) fn log_in(
    connection: &mut Connection,
    params: AuthenticateRequest,
    reply: Responder<Value>,
) {
    choose(connection, &params, None, reply.done(|()| json!({})));
}

/// Chooses a method. The client at `peer` is told of a new answer to `auth/status`.
fn choose(
    connection: &mut Connection,
    params: &AuthenticateRequest,
    peer: Option<Peer>,
    done: Completion<()>,
) {
    let host = Arc::clone(&connection.host);
    let offer = connection.offer.clone();
    let method = params.method_id.0.to_string();
    let task = capabilities::authenticate(host, peer, offer, method, done);
    // A session that is opened next finds the method in effect.
    connection.offer = capabilities::later_offer(&connection.host, task);
}

/// Stored keys stay: they belong to the user and not to this client.
pub(super) fn log_out(connection: &mut Connection, _: Value, reply: Responder<Value>) {
    let host = connection.host.clone();
    let offer = connection.offer.clone();
    // A login that was requested before is finished first.
    let task = async move {
        let offer = offer.await;
        host.log_out();
        reply.ok(&json!({}));
        offer
    };
    connection.offer = capabilities::later_offer(&connection.host, task);
}

pub(super) fn auth_status(
    connection: &mut Connection,
    _: AuthStatusRequest,
    reply: Responder<AuthStatusResponse>,
) {
    let host = Arc::clone(&connection.host);
    let offer = connection.offer.clone();
    connection.host.spawn(async move {
        // An `authenticate` that came before is part of the answer.
        offer.await;
        let AccountStatus { sign_in, accounts } = account_status(host).await;
        reply.ok(&AuthStatusResponse::new(state(sign_in)).accounts(wire_accounts(accounts)));
    });
}

/// Tells the client if its last request has changed what `auth/status` would answer.
pub(in crate::acp) async fn notify_change(
    host: Arc<SessionHost>,
    peer: &Peer,
    before: &AccountStatus,
) {
    let now = account_status(host).await;
    if now != *before {
        let AccountStatus { sign_in, accounts } = now;
        let update = AuthStatusUpdateNotification::new(state(sign_in));
        peer.outbox().notify("auth/status_update", &update.accounts(wire_accounts(accounts)));
    }
}

pub(in crate::acp) async fn account_status(host: Arc<SessionHost>) -> AccountStatus {
    let unknown = AccountStatus { sign_in: SignIn::Unknown, accounts: Vec::new() };
    spawn_blocking(move || host.account_status()).await.unwrap_or(unknown)
}

fn state(sign_in: SignIn) -> AuthState {
    match sign_in {
        SignIn::Done => AuthState::Authenticated,
        SignIn::Missing => AuthState::Unauthenticated,
        SignIn::NotNeeded => AuthState::NotRequired,
        SignIn::Unknown => AuthState::Unknown,
    }
}

fn wire_accounts(accounts: Vec<(String, bool)>) -> Vec<AuthAccount> {
    accounts.into_iter().map(|(label, active)| AuthAccount::new(label).active(active)).collect()
}
