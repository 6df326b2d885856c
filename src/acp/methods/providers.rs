//! `providers/list`, `providers/set` and `providers/disable` (unstable, version 1 only), by which a client replaces
//! the default provider for this process (R-PROV-1). They read files, so they are answered from tasks.

use std::sync::Arc;

use serde_json::{Value, json};
use url::Url;

use super::auth_status::{account_status, notify_change};
use crate::acp::connection::Connection;
use crate::acp::error::invalid;
use crate::acp::responder::Responder;
use crate::acp::schema::{
    DisableProviderRequest, ListProvidersRequest, ListProvidersResponse, LlmProtocol,
    ProviderCurrentConfig, ProviderInfo, SetProviderRequest,
};
use crate::error::Error;
use tokio::task::spawn_blocking;
use turnwright_config::{ClientProvider, pasted_base_url};
use turnwright_types::redact;

/// The only provider that a client can set: the one with which sessions start.
const DEFAULT_PROVIDER: &str = "default";

pub(super) fn list_providers(
    connection: &mut Connection,
    _: ListProvidersRequest,
    reply: Responder<ListProvidersResponse>,
) {
    let host = Arc::clone(&connection.host);
    connection.host.spawn(async move {
        let base_url = spawn_blocking(move || host.config().snapshot().default_base_url()).await;
        let current =
            base_url.ok().flatten().map(|url| ProviderCurrentConfig::new(LlmProtocol::OpenAi, url));
        let apis = vec![LlmProtocol::OpenAi];
        let provider = ProviderInfo::new(DEFAULT_PROVIDER, apis, false, current);
        reply.ok(&ListProvidersResponse::new(vec![provider]));
    });
}

pub(super) fn set_provider(
    connection: &mut Connection,
    params: SetProviderRequest,
    reply: Responder<Value>,
) {
    let Some((provider, reply)) = reply.if_ok(wanted_provider(params)) else { return };
    change(connection, provider, reply);
}

pub(super) fn disable_provider(
    connection: &mut Connection,
    params: DisableProviderRequest,
    reply: Responder<Value>,
) {
    // One that does not exist is disabled already.
    if &*params.provider_id.0 != DEFAULT_PROVIDER {
        return reply.ok(&json!({}));
    }
    change(connection, ClientProvider::Disabled, reply);
}

fn wanted_provider(params: SetProviderRequest) -> Result<ClientProvider, Error> {
    let SetProviderRequest { provider_id, api_type, base_url, headers, .. } = params;
    let base_url = pasted_base_url(&base_url);
    if &*provider_id.0 != DEFAULT_PROVIDER {
        return Err(invalid(format!("Unknown provider; the only one is `{DEFAULT_PROVIDER}`")));
    }
    if api_type != LlmProtocol::OpenAi {
        return Err(invalid("`apiType` must be openai, the only API that is supported"));
    }
    if !Url::parse(&base_url).is_ok_and(|url| is_usable_address(&url)) {
        let why = "`baseUrl` must be an http or https address. Credentials belong into `headers`";
        return Err(invalid(why));
    }
    let headers = headers.into_iter().map(|(name, value)| (name, value.into())).collect();
    Ok(ClientProvider::Set { base_url, headers })
}

/// Returns true for an http or https address without a secret: the facts learned of a server are kept under its
/// address.
fn is_usable_address(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
}

/// Changes the provider. Sessions that are opened from now on use it.
fn change(connection: &mut Connection, provider: ClientProvider, reply: Responder<Value>) {
    let host = Arc::clone(&connection.host);
    let peer = connection.peer.clone();
    connection.host.spawn(async move {
        let before = account_status(Arc::clone(&host)).await;
        host.config().set_client_provider(provider);
        // From now on the client's credentials are redacted like our own keys.
        let config_host = Arc::clone(&host);
        let registered = spawn_blocking(move || {
            redact::register_keys(config_host.config().snapshot().secrets())
        })
        .await;
        if !matches!(registered, Ok(Ok(()))) {
            tracing::error!("the client's credentials cannot be redacted");
        }
        reply.ok(&json!({}));
        notify_change(host, &peer, &before).await;
    });
}
