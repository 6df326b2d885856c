//! A client of version 2.

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v2::schema::{
    ClientCapabilities, CreateElicitationRequest, Implementation, InitializeRequest,
    InitializeResponse, RequestPermissionRequest, UpdateSessionNotification,
};
use agent_client_protocol::v2::{ConnectionTo, InitializeOutcome};
use agent_client_protocol::{
    Agent, Client, DynConnectTo, Error, on_receive_notification, on_receive_request,
};
use serde_json::{from_value, json, to_value};

use crate::client::{Inbox, Peer, Setting, check, shown, typed_calls};
use crate::conversation::converse;
use crate::echo_server::echo_server;

typed_calls!(agent_client_protocol::v2::schema {
    "session/new" => NewSessionRequest,
    "session/resume" => ResumeSessionRequest,
    "session/fork" => ForkSessionRequest,
    "session/list" => ListSessionsRequest,
    "session/close" => CloseSessionRequest,
    "session/delete" => DeleteSessionRequest,
    "session/archive" => ArchiveSessionRequest,
    "session/unarchive" => UnarchiveSessionRequest,
    "session/status" => SessionStatusRequest,
    "session/set_title" => SetSessionTitleRequest,
    "session/set_config_option" => SetSessionConfigOptionRequest,
    "session/prompt" => PromptRequest,
});

pub async fn drive(setting: Setting, agent: DynConnectTo<Client>) -> Result<(), Error> {
    let inbox = Inbox::default();
    let (updates, questions, forms) = (inbox.clone(), inbox.clone(), inbox.clone());
    Client
        .v2()
        .name("turnwright-test")
        .on_receive_notification(
            async move |notification: UpdateSessionNotification, _| updates.add(&notification),
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
            let capabilities =
                to_value(&answer.capabilities.session).map_err(Error::into_internal_error)?;
            let takes_servers = capabilities["mcp"]["acp"].is_object();
            let peer = Peer {
                connection: connection.clone().into_raw(),
                call,
                inbox,
                is_v2: true,
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
    let info = Implementation::new("turnwright-test", "1.0.0");
    let request = InitializeRequest::new(ProtocolVersion::V2, info).capabilities(capabilities);
    let outcome = connection.send_initialize(request).block_task().await?;
    let InitializeOutcome::Initialized(answer) = outcome else {
        return Err(Error::internal_error().data("another version"));
    };
    println!("initialize: {:?}", answer.info);
    Ok(answer)
}

/// A session that is opened, prompted, cancelled and closed with the SDK's own helpers.
async fn helpers(peer: &Peer, connection: &ConnectionTo<Agent>) -> Result<(), Error> {
    let opened = connection.build_session(peer.cwd()).start_session().block_task().await?;
    let session = opened.session;
    let session_id = session.session_id().to_string();
    let start = peer.inbox.len();
    session.send_prompt("Take long").block_task().await?;
    let has_begun = |updates: &[serde_json::Value]| {
        let mut updates = updates.iter();
        updates.any(|it| it["sessionUpdate"] == "agent_message_chunk").then_some(())
    };
    peer.inbox.until(&session_id, start, has_begun).await;
    session.cancel_active_work()?;
    let find = |updates: &[serde_json::Value]| {
        updates.iter().find(|it| it["stopReason"].is_string()).cloned()
    };
    let idle = peer.inbox.until(&session_id, start, find).await;
    check(idle["stopReason"] == "cancelled", &idle.to_string())?;
    session.close().block_task().await?;
    let forking = connection.fork_session(session_id, peer.cwd());
    let fork = forking.start_session().block_task().await?;
    fork.session.close().block_task().await?;
    println!("the helpers of the SDK");
    Ok(())
}

/// The agent calls a tool of an MCP server that the client lends it over this connection.
async fn lent_server(peer: &Peer, connection: &ConnectionTo<Agent>) -> Result<(), Error> {
    let building = connection.build_session(peer.cwd()).with_mcp_server(echo_server())?;
    let session = building.start_session().block_task().await?.session;
    let session_id = session.session_id().to_string();
    let start = peer.inbox.len();
    session.send_prompt("Use the server").block_task().await?;
    let find = |updates: &[serde_json::Value]| {
        updates.iter().find(|it| it["stopReason"].is_string()).cloned()
    };
    peer.inbox.until(&session_id, start, find).await;
    let turn = shown(peer.inbox.updates(&session_id, start));
    check(turn.chunks.concat().ends_with("The server was used."), &format!("{turn:?}"))?;
    check(turn.cards[0].to_string().contains("echo: PELICAN"), &turn.cards[0].to_string())?;
    session.close().block_task().await?;
    println!("MCP over ACP");
    Ok(())
}
