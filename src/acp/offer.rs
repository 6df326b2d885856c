//! The offer of `initialize` to the client, and the choice of an auth method. Both read the settings, so they
//! are answered from tasks; what depends on them waits in its own task.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use super::methods::auth_status::{account_status, notify_change};
use super::schema::AuthMethod;
use crate::completion::Completion;
use crate::error::Error;
use crate::session::{Modalities, SessionHost};
use tokio::task::spawn_blocking;
use turnwright_rpc::Peer;

/// The offer of `initialize` to the client.
#[derive(Clone, Debug, Default)]
pub(super) struct Offer {
    /// The content besides text that is accepted in prompts.
    pub(super) modalities: Modalities,
    /// The ids that `authenticate` accepts.
    auth_methods: Vec<String>,
}

/// An offer that is known once its task has answered the client.
pub(super) type PendingOffer = Shared<BoxFuture<'static, Offer>>;

/// The offer before `initialize`.
pub(super) fn none() -> PendingOffer {
    std::future::ready(Offer::default()).boxed().shared()
}

/// Runs the task that makes the offer.
pub(super) fn later(
    host: &SessionHost,
    task: impl Future<Output = Offer> + Send + 'static,
) -> PendingOffer {
    host.spawn(task).map(Result::unwrap_or_default).boxed().shared()
}

/// Makes an offer. `answer` sends it to the client, and returns the auth methods.
pub(super) fn make(
    host: &Arc<SessionHost>,
    answer: impl FnOnce(bool, Modalities) -> Vec<AuthMethod> + Send + 'static,
) -> impl Future<Output = Offer> + Send + 'static {
    let host = Arc::clone(host);
    async move {
        let store = host.store().clone();
        let asking = Arc::clone(&host);
        let read = spawn_blocking(move || {
            let settings = host.config().snapshot();
            (settings.unconfigured_model().is_none(), host.default_modalities(&settings))
        });
        let Ok((is_configured, modalities)) = read.await else {
            return Offer::default();
        };
        let methods = answer(is_configured, modalities);
        let agent_methods = methods.iter().filter_map(|method| match method {
            AuthMethod::Agent(method) => Some(method.id.0.to_string()),
            // The client runs terminal methods itself, without `authenticate` (R-AUTH-4).
            _ => None,
        });
        let offer = Offer { modalities, auth_methods: agent_methods.collect() };
        // The store is opened now, so that the first session does not wait for the disk, nor for the system.
        store.open_in_background();
        asking.look_at_system();
        offer
    }
}

/// Applies the client's choice of an auth method and returns the same offer. Notifies the client at `peer` if the
/// choice changes the answer to `auth/status`.
pub(super) fn authenticate(
    host: &Arc<SessionHost>,
    peer: Option<Peer>,
    offer: PendingOffer,
    method: String,
    done: Completion<()>,
) -> impl Future<Output = Offer> + Send + 'static {
    let host = Arc::clone(host);
    async move {
        let offer = offer.await;
        let before = account_status(Arc::clone(&host)).await;
        done.complete(choose_method(Arc::clone(&host), &offer, &method).await);
        if let Some(peer) = peer {
            notify_change(host, &peer, &before).await;
        }
        offer
    }
}

async fn choose_method(host: Arc<SessionHost>, offer: &Offer, method: &str) -> Result<(), Error> {
    if !offer.auth_methods.iter().any(|known| known == method) {
        return Err(Error::InvalidParams(format!(
            "Unknown auth method `{method}`; offered are: {}",
            offer.auth_methods.join(", ")
        )));
    }
    match method {
        "offline" => host.use_offline(),
        // The client has run the login in a terminal and now asks whether it succeeded.
        "login" => {
            let asked = Arc::clone(&host);
            let missing =
                spawn_blocking(move || asked.config().snapshot().unconfigured_model()).await;
            if let Some(missing) = missing.unwrap_or_default() {
                return Err(Error::NoModelConfigured(missing));
            }
        }
        _ => {}
    }
    host.log_in();
    Ok(())
}
