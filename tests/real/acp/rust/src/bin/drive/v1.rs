//! A client of version 1. It lends the agent nothing but forms, so that the agent uses its own files and
//! terminals.

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, CreateElicitationRequest, Implementation, InitializeRequest,
    InitializeResponse, RequestPermissionRequest, SessionNotification,
};
use agent_client_protocol::{
    Agent, Client, DynConnectTo, Error, Handled, on_receive_notification, on_receive_request,
};
use serde_json::{from_value, json, to_value};

use crate::client::{Inbox, Peer, Setting, check, shown, typed_calls};
use crate::conversation::converse;
use crate::echo_server::echo_server;

typed_calls!(agent_client_protocol::v1::schema {
    "session/new" => NewSessionRequest,
    "session/load" => LoadSessionRequest,
    "session/resume" => ResumeSessionRequest,
    "session/fork" => ForkSessionRequest,
    "session/list" => ListSessionsRequest,
    "session/close" => CloseSessionRequest,
    "session/delete" => DeleteSessionRequest,
    "session/archive" => ArchiveSessionRequest,
    "session/unarchive" => UnarchiveSessionRequest,
    "session/status" => SessionStatusRequest,
    "session/set_title" => SetSessionTitleRequest,
    "session/set_mode" => SetSessionModeRequest,
    "session/set_config_option" => SetSessionConfigOptionRequest,
    "session/prompt" => PromptRequest,
});

pub async fn drive(setting: Setting, agent: DynConnectTo<Client>) -> Result<(), Error> {
    let inbox = Inbox::default();
    let (updates, questions, forms) = (inbox.clone(), inbox.clone(), inbox.clone());
    Client
        .v1()
        .name("turnwright-test")
        .on_receive_notification(
            async move |notification: SessionNotification, connection| {
                updates.add(&notification)?;
                // A session of the SDK's helpers wants its updates, too.
                Ok(Handled::No { message: (notification, connection), retry: false })
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                let outcome = questions.outcome(&request)?;
                responder.respond(from_value(outcome).map_err(Error::into_internal_error)?)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CreateElicitationRequest, responder, _| {
                let content = forms.filled(&request)?;
                responder.respond(from_value(content).map_err(Error::into_internal_error)?)
            },
            on_receive_request!(),
        )
        .connect_with(agent, async move |connection: ConnectionTo<Agent>| {
            let answer = initialize(&connection).await?;
            let capabilities = to_value(&answer.agent_capabilities.session_capabilities)
                .map_err(Error::into_internal_error)?;
            let takes_servers = answer.agent_capabilities.mcp_capabilities.acp;
            let peer = Peer {
                connection: connection.clone().into_raw(),
                call,
                inbox,
                is_v2: false,
                setting,
                capabilities,
            };
            converse(&peer).await?;
            helpers(&peer, &connection).await?;
            if takes_servers {
                lent_server(&peer, &connection).await?;
            } else {
                println!("SKIPPED: MCP over ACP, which the agent does not advertise");
            }
            Ok(())
        })
        .await
}

async fn initialize(connection: &ConnectionTo<Agent>) -> Result<InitializeResponse, Error> {
    let capabilities: ClientCapabilities =
        from_value(json!({ "elicitation": { "form": {} } })).map_err(Error::into_internal_error)?;
    let request = InitializeRequest::new(ProtocolVersion::V1)
        .client_info(Implementation::new("turnwright-test", "1.0.0"))
        .client_capabilities(capabilities);
    let answer = connection.send_request(request).block_task().await?;
    check(answer.protocol_version == ProtocolVersion::V1, "another version")?;
    check(answer.agent_capabilities.load_session, "no session/load")?;
    println!("initialize: {:?}", answer.agent_info);
    Ok(answer)
}

/// A session that is opened, prompted and loaded with the SDK's own helpers.
async fn helpers(peer: &Peer, connection: &ConnectionTo<Agent>) -> Result<(), Error> {
    let mut opened = connection.build_session(peer.cwd()).block_task().start_session().await?;
    opened.session.send_prompt("Say hello.")?;
    let text = opened.session.read_to_string().await?;
    check(text == "Hello from the model.", &text)?;
    let session_id = opened.session.session_id().clone();
    drop(opened);
    peer.call("session/close", json!({ "sessionId": session_id })).await?;
    let loading = connection.load_session(session_id.clone(), peer.cwd());
    let mut loaded = loading.block_task().start_session().await?;
    loaded.session.send_prompt("Say hello.")?;
    let text = loaded.session.read_to_string().await?;
    check(text.ends_with("Hello from the model."), &text)?;
    drop(loaded);
    peer.call("session/close", json!({ "sessionId": session_id })).await?;
    println!("the helpers of the SDK");
    Ok(())
}

/// The agent calls a tool of an MCP server that the client lends it over this connection.
async fn lent_server(peer: &Peer, connection: &ConnectionTo<Agent>) -> Result<(), Error> {
    let building = connection.build_session(peer.cwd()).with_mcp_server(echo_server())?;
    let opened = building.block_task().start_session().await?;
    let mut session = opened.session;
    let session_id = session.session_id().to_string();
    let start = peer.inbox.len();
    session.send_prompt("Use the server")?;
    let text = session.read_to_string().await?;
    check(text == "The server was used.", &text)?;
    let turn = shown(peer.inbox.updates(&session_id, start));
    check(turn.cards[0].to_string().contains("echo: PELICAN"), &turn.cards[0].to_string())?;
    peer.call("session/close", json!({ "sessionId": session_id })).await?;
    println!("MCP over ACP");
    Ok(())
}
