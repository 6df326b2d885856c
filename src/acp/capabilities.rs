//! The capabilities of the client, as read from `initialize`; our offer to it, with the auth methods; and its choice
//! of one. A capability that is not stated is not offered (R-INIT-7). The offer and the choice read the settings, so
//! they are answered from tasks; what depends on them waits in its own task.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use super::error::{invalid, read_params};
use super::methods::INITIALIZE;
use super::methods::auth_status::{account_status, notify_change};
use super::schema::{
    AuthMethod, AuthMethodAgent, AuthMethodTerminal, ClientCapabilities, ElicitationCapabilities,
    InitializeRequest,
};
use super::versions::has_newer_form;
use crate::completion::Completion;
use crate::error::Error;
use crate::session::{Modalities, SessionHost};
use turnwright_rpc::Peer;
use turnwright_types::client::{ChoiceKind, ElicitationModes, PermissionRequest};

/// The client's capabilities that we use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientCaps {
    /// `fs/read_text_file`.
    pub(super) read: bool,
    /// `fs/write_text_file`.
    pub(super) write: bool,
    pub(super) login: LoginSupport,
    /// The client shows `notice` updates.
    pub(super) notices: bool,
    /// The client shows `compaction_update` and `compaction_summary_chunk` updates (R-COMP-1).
    pub(super) compactions: bool,
    /// The client is told where it can fork a session (unstable, R-CUR-1).
    pub(super) cursors: bool,
    /// The client shows plans that have an id (unstable).
    pub(super) plans: bool,
    /// The elicitations that the client shows (R-EL-1).
    pub(super) elicitation: ElicitationModes,
    /// The client runs programs in its own terminals.
    pub(super) terminal: bool,
    /// The client draws terminals from the output that we send in `_meta`.
    pub(super) terminal_output: bool,
    /// The client shows helpers as sessions of their own (R-SUB-1).
    pub(super) subagents: bool,
    /// The client shows prompts that the user may want to send next (R-SUGG-1).
    pub(super) suggestions: bool,
    /// The client shows skills as a kind of command of their own (R-SKILL-1).
    pub(super) skills: bool,
    /// The client shows the answers to a question by their names, so there may be two of the same kind.
    pub(super) names_answers: bool,
}

impl ClientCaps {
    /// Leaves out the wide answers for a client that may send one in place of the narrow one of the same kind.
    pub(super) fn limit_answers(self, request: &mut PermissionRequest) {
        if !self.names_answers {
            request.choices.retain(|choice| {
                !matches!(
                    choice.kind,
                    ChoiceKind::AllowSessionForAll | ChoiceKind::AllowAllCommands
                )
            });
        }
    }
}

/// How a client can run `turnwright login` in a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LoginSupport {
    #[default]
    Unsupported,
    /// As an auth method of type `terminal`.
    Terminal,
    /// As an agent auth method with the command in its `_meta`, which some clients supported before
    /// the type `terminal` existed.
    Meta,
}

/// The names of clients that show only the kinds of answers, and send the last answer of the chosen kind. Most versions
/// of avante.nvim give no name at all.
const LAST_OF_A_KIND: [&str; 2] = ["CodeCompanion.nvim", "avante.nvim"];

/// Reads the client's capabilities from the parameters of `initialize`.
///
/// # Errors
/// If the parameters are malformed, for example without a usable version (R-INIT-5).
pub(super) fn read_client_caps(params: &Value) -> Result<ClientCaps, Error> {
    let version = params.get("protocolVersion").and_then(Value::as_u64);
    let is_newer = version == Some(2) || version > Some(2) && has_newer_form(params);
    let request: InitializeRequest = read_params(INITIALIZE, params)?;
    if is_newer {
        // The v1 fields of a newer client mean nothing: it offers neither files nor terminals,
        // whatever they say (R-INIT-14).
        return Ok(newer_caps(params));
    }
    Ok(ClientCaps { names_answers: names_answers(params), ..v1_caps(&request.client_capabilities) })
}

/// Returns true if the client is known to show the names of answers. Another order of the answers would not help the
/// others: the keys of Zed and many clients without a user send the first answer of a kind.
fn names_answers(params: &Value) -> bool {
    // Version 2 calls it `info`.
    let places = ["/clientInfo/name", "/info/name"];
    let name = places.iter().find_map(|place| params.pointer(place)?.as_str());
    name.is_some_and(|name| !LAST_OF_A_KIND.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

/// Reads the capabilities of a client that speaks version 2, of which notices, compactions and plans with an id are a
/// part.
pub(super) fn read_v2_client_caps(params: &Value) -> ClientCaps {
    ClientCaps {
        notices: true,
        compactions: true,
        plans: true,
        suggestions: has_object(params, "/capabilities/session/promptSuggestions"),
        skills: has_object(params, "/capabilities/session/commands/skill"),
        ..newer_caps(params)
    }
}

/// The capabilities in the form of version 2 that mean the same in version 1.
fn newer_caps(params: &Value) -> ClientCaps {
    let login = if has_object(params, "/capabilities/auth/terminal") {
        LoginSupport::Terminal
    } else {
        LoginSupport::Unsupported
    };
    let elicitation = ElicitationModes {
        form: has_object(params, "/capabilities/elicitation/form"),
        url: has_object(params, "/capabilities/elicitation/url"),
    };
    ClientCaps { login, elicitation, names_answers: names_answers(params), ..ClientCaps::default() }
}

fn has_object(params: &Value, place: &str) -> bool {
    params.pointer(place).is_some_and(Value::is_object)
}

fn v1_caps(caps: &ClientCapabilities) -> ClientCaps {
    let in_meta =
        |key: &str| caps.meta.as_ref().is_some_and(|meta| meta.get(key) == Some(&json!(true)));
    let login = match (caps.auth.terminal, in_meta("terminal-auth")) {
        (true, _) => LoginSupport::Terminal,
        (false, true) => LoginSupport::Meta,
        (false, false) => LoginSupport::Unsupported,
    };
    ClientCaps {
        read: caps.fs.read_text_file,
        write: caps.fs.write_text_file,
        login,
        notices: caps.session.as_ref().is_some_and(|session| session.notices.is_some()),
        compactions: caps.session.as_ref().is_some_and(|session| session.compaction.is_some()),
        cursors: caps.session.as_ref().is_some_and(|session| session.cursors.is_some()),
        plans: caps.plan.is_some(),
        elicitation: ElicitationModes {
            form: caps.elicitation.as_ref().is_some_and(ElicitationCapabilities::supports_form),
            url: caps.elicitation.as_ref().is_some_and(ElicitationCapabilities::supports_url),
        },
        // The launcher that runs in the terminal talks to the agent over a Unix socket.
        terminal: caps.terminal && cfg!(unix),
        terminal_output: in_meta("terminal_output"),
        subagents: caps.subagents.is_some(),
        suggestions: caps.session.as_ref().is_some_and(|all| all.prompt_suggestions.is_some()),
        skills: false,
        names_answers: false,
    }
}

/// The auth methods to offer, depending on whether a model is configured.
pub(super) fn auth_methods(is_configured: bool, caps: ClientCaps) -> Vec<AuthMethod> {
    if is_configured {
        // Several clients call the first method on every start, so it must exist and be quick.
        let method = AuthMethodAgent::new("configured", "Configured")
            .description("A model is already configured".to_owned());
        return vec![AuthMethod::Agent(method)];
    }
    let offline = AuthMethodAgent::new("offline", "Try it offline").description(
        "Use the built-in offline model: it needs no account and no network, but it is not a \
         language model"
            .to_owned(),
    );
    let mut methods = vec![AuthMethod::Agent(offline)];
    let description = "Choose a provider and a model, and store the key".to_owned();
    match caps.login {
        LoginSupport::Unsupported => {}
        LoginSupport::Terminal => {
            let args = vec!["login".to_owned()];
            let login =
                AuthMethodTerminal::new("login", "Log in").args(args).description(description);
            methods.push(AuthMethod::Terminal(login));
        }
        LoginSupport::Meta => {
            let command = json!({
                "label": "Log in", "command": own_executable(), "args": ["login"], "env": {},
            });
            let meta = [("terminal-auth".to_owned(), command)].into_iter().collect::<Map<_, _>>();
            let login = AuthMethodAgent::new("login", "Log in").description(description).meta(meta);
            methods.push(AuthMethod::Agent(login));
        }
    }
    methods
}

/// The path of this program, for a client that must start it again.
fn own_executable() -> String {
    std::env::current_exe()
        .map_or("turnwright".to_owned(), |path| path.to_string_lossy().into_owned())
}

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
pub(super) fn no_offer() -> PendingOffer {
    std::future::ready(Offer::default()).boxed().shared()
}

/// Runs the task that makes the offer.
pub(super) fn later_offer(
    host: &SessionHost,
    task: impl Future<Output = Offer> + Send + 'static,
) -> PendingOffer {
    host.spawn(task).map(Result::unwrap_or_default).boxed().shared()
}

/// Makes an offer. `answer` sends it to the client, and returns the auth methods.
pub(super) async fn make_offer(
    host: Arc<SessionHost>,
    answer: impl FnOnce(bool, Modalities) -> Vec<AuthMethod>,
) -> Offer {
    let asked = Arc::clone(&host);
    let read = spawn_blocking(move || {
        let settings = asked.config().snapshot();
        (settings.unconfigured_model().is_none(), asked.default_modalities(&settings))
    });
    let Ok((is_configured, modalities)) = read.await else { return Offer::default() };
    let methods = answer(is_configured, modalities);
    let agent_methods = methods.iter().filter_map(|method| match method {
        AuthMethod::Agent(method) => Some(method.id.0.to_string()),
        // The client runs terminal methods itself, without `authenticate` (R-AUTH-4).
        _ => None,
    });
    let offer = Offer { modalities, auth_methods: agent_methods.collect() };
    // The store is opened now, so that the first session does not wait for the disk, nor for the system.
    host.store().open_in_background();
    host.look_at_system();
    offer
}

/// Applies the client's choice of an auth method and returns the same offer. Notifies the client at `peer` if the
/// choice changes the answer to `auth/status`.
pub(super) async fn authenticate(
    host: Arc<SessionHost>,
    peer: Option<Peer>,
    offer: PendingOffer,
    method: String,
    done: Completion<()>,
) -> Offer {
    let offer = offer.await;
    let before = account_status(Arc::clone(&host)).await;
    done.complete(choose_method(Arc::clone(&host), &offer, &method).await);
    if let Some(peer) = peer {
        notify_change(host, &peer, &before).await;
    }
    offer
}

async fn choose_method(host: Arc<SessionHost>, offer: &Offer, method: &str) -> Result<(), Error> {
    if !offer.auth_methods.iter().any(|known| known == method) {
        return Err(invalid(format!(
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
