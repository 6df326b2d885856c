//! `auth/status` (unstable, version 1 only) and the notification `auth/status_update`. Accounts are read from
//! files, so the request is answered from a task.

use std::sync::Arc;

use crate::acp::connection::Connection;
use crate::acp::responder::Responder;
use crate::acp::schema::{
    AuthAccount, AuthState, AuthStatusRequest, AuthStatusResponse, AuthStatusUpdateNotification,
};
use crate::session::SessionHost;
use tokio::task::spawn_blocking;
use turnwright_config::{AccountStatus, SignIn};
use turnwright_rpc::Peer;

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
