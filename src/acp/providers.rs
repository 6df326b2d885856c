//! The unstable surfaces about accounts and providers: `auth/status` with its updates, and `providers/*`, by
//! which a client replaces the default provider for this process (R-PROV-1). Both read files, so they are
//! answered from tasks.

use std::sync::Arc;

use url::Url;

use super::connection::Connection;
use super::responder::Responder;
use super::wire::schema::{
    AuthAccount, AuthState, AuthStatusRequest, AuthStatusResponse, AuthStatusUpdateNotification,
    DisableProviderRequest, DisableProviderResponse, ListProvidersRequest, ListProvidersResponse,
    LlmProtocol, ProviderCurrentConfig, ProviderInfo, SetProviderRequest, SetProviderResponse,
};
use super::wire::{AuthStatus, DisableProvider, ListProviders, SetProvider};
use crate::config::{AccountStatus, ClientProvider, SignIn, pasted_base_url};
use crate::error::Error;
use crate::session::SessionHost;
use tokio::task::spawn_blocking;
use turnwright_rpc::{Peer, RequestId};
use turnwright_types::redact;

/// The only provider that a client can set: the one with which sessions start.
const DEFAULT_PROVIDER: &str = "default";

pub(super) fn status(
    connection: &mut Connection,
    _: &RequestId,
    _: AuthStatusRequest,
    reply: Responder<AuthStatus>,
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
pub(super) async fn notify_change(host: Arc<SessionHost>, peer: &Peer, before: &AccountStatus) {
    let now = account_status(host).await;
    if now != *before {
        let AccountStatus { sign_in, accounts } = now;
        let update = AuthStatusUpdateNotification::new(state(sign_in));
        peer.outbox().notify("auth/status_update", &update.accounts(wire_accounts(accounts)));
    }
}

pub(super) async fn account_status(host: Arc<SessionHost>) -> AccountStatus {
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

pub(super) fn list(
    connection: &mut Connection,
    _: &RequestId,
    _: ListProvidersRequest,
    reply: Responder<ListProviders>,
) {
    let host = Arc::clone(&connection.host);
    connection.host.spawn(async move {
        let base_url = spawn_blocking(move || host.config().default_base_url()).await;
        let current =
            base_url.ok().flatten().map(|url| ProviderCurrentConfig::new(LlmProtocol::OpenAi, url));
        let apis = vec![LlmProtocol::OpenAi];
        let provider = ProviderInfo::new(DEFAULT_PROVIDER, apis, false, current);
        reply.ok(&ListProvidersResponse::new(vec![provider]));
    });
}

pub(super) fn set(
    connection: &mut Connection,
    _: &RequestId,
    params: SetProviderRequest,
    reply: Responder<SetProvider>,
) {
    match wanted_provider(params) {
        Ok(provider) => change(connection, provider, || reply.ok(&SetProviderResponse::new())),
        Err(error) => reply.fail(&error),
    }
}

fn wanted_provider(params: SetProviderRequest) -> Result<ClientProvider, Error> {
    let SetProviderRequest { provider_id, api_type, base_url, headers, .. } = params;
    let base_url = pasted_base_url(&base_url);
    if &*provider_id.0 != DEFAULT_PROVIDER {
        let why = format!("Unknown provider; the only one is `{DEFAULT_PROVIDER}`");
        return Err(Error::InvalidParams(why));
    }
    if api_type != LlmProtocol::OpenAi {
        let why = "`apiType` must be openai, the only API that is supported";
        return Err(Error::InvalidParams(why.to_owned()));
    }
    if !Url::parse(&base_url).is_ok_and(|url| is_usable_address(&url)) {
        let why = "`baseUrl` must be an http or https address. Credentials belong into `headers`";
        return Err(Error::InvalidParams(why.to_owned()));
    }
    let headers = headers.into_iter().map(|(name, value)| (name, value.into())).collect();
    Ok(ClientProvider::Set { base_url, headers })
}

/// Returns true for an http or https address without a secret: the facts learned of a server are kept under its address.
fn is_usable_address(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
}

pub(super) fn disable(
    connection: &mut Connection,
    _: &RequestId,
    DisableProviderRequest { provider_id, .. }: DisableProviderRequest,
    reply: Responder<DisableProvider>,
) {
    // One that does not exist is disabled already.
    if &*provider_id.0 != DEFAULT_PROVIDER {
        return reply.ok(&DisableProviderResponse::new());
    }
    change(connection, ClientProvider::Disabled, || reply.ok(&DisableProviderResponse::new()));
}

/// Changes the provider. Sessions that are opened from now on use it.
fn change(
    connection: &mut Connection,
    provider: ClientProvider,
    answer: impl FnOnce() + Send + 'static,
) {
    let host = Arc::clone(&connection.host);
    let peer = connection.peer.clone();
    connection.host.spawn(async move {
        let before = account_status(Arc::clone(&host)).await;
        host.config().set_client_provider(provider);
        // From now on the client's credentials are redacted like our own keys.
        let config_host = Arc::clone(&host);
        let registered =
            spawn_blocking(move || redact::register_keys(config_host.config().secrets())).await;
        if !matches!(registered, Ok(Ok(()))) {
            tracing::error!("the client's credentials cannot be redacted");
        }
        answer();
        notify_change(host, &peer, &before).await;
    });
}
