//! What each side can do. Fixed by `initialize`; what is not said is not offered (R-INIT-7).

use serde_json::{Map, Value, json};

use super::extensions;
use super::wire::schema::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, ClientCapabilities,
    ElicitationCapabilities, Implementation, InitializeRequest, InitializeResponse,
    McpCapabilities, PromptCapabilities, SessionAdditionalDirectoriesCapabilities,
    SessionArchiveCapabilities, SessionCapabilities, SessionCloseCapabilities,
    SessionDeleteCapabilities, SessionForkCapabilities, SessionListCapabilities,
    SessionResumeCapabilities, SessionStatusCapabilities, SessionTitleCapabilities,
};
use crate::session::Senses;
use agent_client_protocol_schema::ProtocolVersion;

/// What the client offers, as far as we use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientCaps {
    /// `fs/read_text_file`.
    pub(super) read: bool,
    /// `fs/write_text_file`.
    pub(super) write: bool,
    /// How it can run our login in a terminal, if it can.
    pub(super) login: Login,
    /// It shows notices.
    pub(super) notices: bool,
    /// It shows forms (R-EL-1).
    pub(super) forms: bool,
    /// It runs programs in terminals of its own.
    pub(super) terminal: bool,
    /// It draws terminals from what we send, in `_meta`.
    pub(super) terminal_output: bool,
}

/// How a client can run our login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Login {
    /// Not at all.
    #[default]
    No,
    /// By a method of type `terminal`.
    Terminal,
    /// By `_meta` of a method, which some clients understood before there was that type.
    Meta,
}

/// Reads the parameters of `initialize`.
///
/// # Errors
/// When there is no usable version (R-INIT-5).
pub(super) fn read(params: Value) -> Result<ClientCaps, serde_json::Error> {
    let newer = params.get("protocolVersion").and_then(Value::as_u64).is_some_and(|it| it >= 2);
    let terminal = params.pointer("/capabilities/auth/terminal").is_some_and(Value::is_object);
    let forms = params.pointer("/capabilities/elicitation/form").is_some_and(Value::is_object);
    let request: InitializeRequest = serde_json::from_value(params)?;
    if newer {
        // A newer client's v1 fields mean nothing: it has no client files and no client
        // terminals, whatever stands there (R-INIT-14).
        let login = if terminal { Login::Terminal } else { Login::No };
        return Ok(ClientCaps { login, forms, ..ClientCaps::default() });
    }
    Ok(from(&request.client_capabilities))
}

fn from(caps: &ClientCapabilities) -> ClientCaps {
    let in_meta =
        |key: &str| caps.meta.as_ref().is_some_and(|it| it.get(key) == Some(&json!(true)));
    let login = match (caps.auth.terminal, in_meta("terminal-auth")) {
        (true, _) => Login::Terminal,
        (false, true) => Login::Meta,
        (false, false) => Login::No,
    };
    ClientCaps {
        read: caps.fs.read_text_file,
        write: caps.fs.write_text_file,
        login,
        notices: caps.session.as_ref().is_some_and(|it| it.notices.is_some()),
        forms: caps.elicitation.as_ref().is_some_and(ElicitationCapabilities::supports_form),
        // The launcher and the agent talk over a Unix socket.
        terminal: caps.terminal && cfg!(unix),
        terminal_output: in_meta("terminal_output"),
    }
}

/// The ways to get ready that are offered, and by which of their names `authenticate` may be
/// called.
pub(super) fn auth_methods(configured: bool, caps: ClientCaps) -> Vec<AuthMethod> {
    if configured {
        // Several clients call the first method on every start: it has to exist and to be quick.
        let method = AuthMethodAgent::new("configured", "Configured")
            .description("A model is configured; there is nothing to do".to_owned());
        return vec![AuthMethod::Agent(method)];
    }
    let offline = AuthMethodAgent::new("offline", "Try it offline").description(
        "Use the small built-in model: it needs no account and no network, and is no language \
         model"
            .to_owned(),
    );
    let mut methods = vec![AuthMethod::Agent(offline)];
    let what = "Store a key for OpenAI or any compatible provider".to_owned();
    match caps.login {
        Login::No => {}
        Login::Terminal => {
            let args = vec!["login".to_owned()];
            let login = AuthMethodTerminal::new("login", "Log in").args(args).description(what);
            methods.push(AuthMethod::Terminal(login));
        }
        Login::Meta => {
            let how =
                json!({ "label": "Log in", "command": program(), "args": ["login"], "env": {} });
            let meta = [("terminal-auth".to_owned(), how)].into_iter().collect::<Map<_, _>>();
            let login = AuthMethodAgent::new("login", "Log in").description(what).meta(meta);
            methods.push(AuthMethod::Agent(login));
        }
    }
    methods
}

/// Where this program is, for a client that has to start it once more.
fn program() -> String {
    std::env::current_exe().map_or("turnwright".to_owned(), |it| it.to_string_lossy().into_owned())
}

/// The answer to `initialize`. Version 1 is the only one we speak, so it is the answer to every
/// request (R-INIT-3, R-INIT-4).
pub(super) fn answer(configured: bool, senses: Senses, caps: ClientCaps) -> InitializeResponse {
    let prompts =
        PromptCapabilities::new().embedded_context(true).image(senses.images).audio(senses.audio);
    let sessions = SessionCapabilities::new()
        .resume(SessionResumeCapabilities::new())
        .close(SessionCloseCapabilities::new())
        .list(SessionListCapabilities::new())
        .delete(SessionDeleteCapabilities::new())
        .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
        .fork(SessionForkCapabilities::new())
        .archive(SessionArchiveCapabilities::new())
        .status(SessionStatusCapabilities::new())
        .title(SessionTitleCapabilities::new());
    let capabilities = AgentCapabilities::new()
        .prompt_capabilities(prompts)
        .load_session(true)
        .session_capabilities(sessions)
        // The other transport of old is not spoken any more (R-MCP-3).
        .mcp_capabilities(McpCapabilities::new().http(true))
        .meta(extensions::advertised());
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .auth_methods(auth_methods(configured, caps))
        .agent_info(
            Implementation::new("turnwright", env!("CARGO_PKG_VERSION"))
                .title("turnwright".to_owned()),
        )
}
