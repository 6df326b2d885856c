//! The capabilities of the client, as read from `initialize`, and the auth methods that are offered to it. A
//! capability that is not stated is not offered (R-INIT-7).

use serde_json::{Map, Value, json};

use super::error::read_params;
use super::methods::INITIALIZE;
use super::schema::{
    AuthMethod, AuthMethodAgent, AuthMethodTerminal, ClientCapabilities, ElicitationCapabilities,
    InitializeRequest,
};
use super::versions::has_newer_form;
use crate::error::Error;

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
    /// The client shows plans that have an id (unstable).
    pub(super) plans: bool,
    /// The client shows elicitation forms (R-EL-1).
    pub(super) forms: bool,
    /// The client runs programs in its own terminals.
    pub(super) terminal: bool,
    /// The client draws terminals from the output that we send in `_meta`.
    pub(super) terminal_output: bool,
    /// The client shows helpers as sessions of their own (unstable).
    pub(super) subagents: bool,
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
    let subagents = has_object(params, "/clientCapabilities/subagents");
    Ok(ClientCaps { subagents, ..v1_caps(&request.client_capabilities) })
}

/// Reads the capabilities of a client that speaks version 2, of which notices and compactions are a part.
pub(super) fn read_v2_client_caps(params: &Value) -> ClientCaps {
    ClientCaps { notices: true, compactions: true, ..newer_caps(params) }
}

/// The capabilities in the form of version 2 that mean the same in version 1.
fn newer_caps(params: &Value) -> ClientCaps {
    let login = if has_object(params, "/capabilities/auth/terminal") {
        LoginSupport::Terminal
    } else {
        LoginSupport::Unsupported
    };
    let forms = has_object(params, "/capabilities/elicitation/form");
    ClientCaps { login, forms, ..ClientCaps::default() }
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
        plans: caps.plan.is_some(),
        forms: caps.elicitation.as_ref().is_some_and(ElicitationCapabilities::supports_form),
        // The launcher that runs in the terminal talks to the agent over a Unix socket.
        terminal: caps.terminal && cfg!(unix),
        terminal_output: in_meta("terminal_output"),
        // It is not among the fields that are read.
        subagents: false,
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
