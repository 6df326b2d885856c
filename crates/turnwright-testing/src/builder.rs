//! Configures and starts a [`TestAgent`].

use std::ffi::OsString;
use std::marker::PhantomData;

use serde_json::{Value, json};

use crate::hosted_server::HostedHandler;
use crate::model_failures::KEY;
use crate::protocol::Protocol;
use crate::scripted_model::{Scenario, Server};
use crate::temporary_folder;
use crate::transport::{Launch, Transport};
use crate::{TestAgent, basic_variables};

/// Configures and starts a [`TestAgent`].
pub struct TestAgentBuilder<T> {
    files: Vec<(String, String)>,
    own_files: Vec<(String, Vec<u8>)>,
    variables: Vec<(String, String)>,
    pub(crate) arguments: Vec<String>,
    replies: Option<Value>,
    capabilities: Value,
    permission: Option<&'static str>,
    pub(crate) allows_stderr: bool,
    has_surroundings: bool,
    pub(crate) namespace_script: Option<&'static str>,
    servers: Vec<Value>,
    protocol: Protocol,
    hosted: Option<HostedHandler>,
    transport: PhantomData<T>,
}

impl<T: Transport> TestAgentBuilder<T> {
    /// Creates a builder for an agent whose scripted model has these replies. Without replies, the
    /// agent has no model.
    pub(crate) fn new(replies: Option<Value>) -> TestAgentBuilder<T> {
        TestAgentBuilder {
            files: Vec::new(),
            own_files: Vec::new(),
            variables: Vec::new(),
            arguments: Vec::new(),
            replies,
            capabilities: json!({}),
            permission: None,
            allows_stderr: false,
            has_surroundings: false,
            namespace_script: None,
            servers: Vec::new(),
            protocol: Protocol::of_environment(),
            hosted: None,
            transport: PhantomData,
        }
    }

    /// Speaks version 2 of the protocol; the log has its messages.
    #[must_use]
    pub fn v2(mut self) -> Self {
        self.protocol = Protocol::V2;
        self
    }

    /// Adds a file to the workspace.
    #[must_use]
    pub fn file(mut self, path: &str, content: &str) -> Self {
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// Adds a file to the agent's own folder, such as `config/config.toml`.
    #[must_use]
    pub fn own_file(self, path: &str, content: &str) -> Self {
        self.own_bytes(path, content.into())
    }

    /// Adds a file of bytes to the agent's own folder.
    #[must_use]
    pub fn own_bytes(mut self, path: &str, content: Vec<u8>) -> Self {
        self.own_files.push((path.to_owned(), content));
        self
    }

    /// Sets a variable in the agent's environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Tells the model of the surroundings, and looks for checks in the project's files. Without this, no story
    /// depends on the machine or on what its files look like.
    #[must_use]
    pub fn surroundings(mut self) -> Self {
        self.has_surroundings = true;
        self
    }

    /// Sets the replies of the scripted model, in the format of [`crate::scripted_model`].
    #[must_use]
    pub fn model(mut self, replies: Value) -> Self {
        self.replies = Some(replies);
        self
    }

    /// Sets the client's capabilities.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Answers every permission request with this option.
    #[must_use]
    pub fn permission(mut self, option: &'static str) -> Self {
        self.permission = Some(option);
        self
    }

    /// Adds an MCP server, in the format of the protocol, to each session.
    #[must_use]
    pub fn server_as(mut self, server: Value) -> Self {
        self.servers.push(server);
        self
    }

    /// Answers the requests to MCP servers that the client hosts, given the parameters of `mcp/message`, with
    /// its result. `None` leaves a request to the test.
    #[must_use]
    pub fn hosting(mut self, answer: impl FnMut(&Value) -> Option<Value> + 'static) -> Self {
        self.hosted = Some(Box::new(answer));
        self
    }

    /// Starts the agent without sending anything.
    #[must_use]
    pub fn spawn(self) -> TestAgent<T> {
        let workspace = temporary_folder();
        let home = temporary_folder();
        let workspace_files =
            self.files.iter().map(|it| (workspace.path().join(&it.0), it.1.as_bytes()));
        let own_files = self.own_files.iter().map(|it| (home.path().join(&it.0), it.1.as_slice()));
        for (path, content) in workspace_files.chain(own_files) {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let model = self.replies.map(|replies| {
            let scenario = json!({ "replies": replies });
            Server::start(Scenario::from_value(scenario).unwrap(), 0).unwrap()
        });
        let mut variables = Vec::new();
        if cfg!(windows) {
            // Without these, a command there finds no other program.
            let text = |value: OsString| value.into_string().unwrap();
            variables.extend(basic_variables().map(|it| (it.0.to_owned(), text(it.1))));
        }
        if let Some(model) = &model {
            variables.push(("OPENAI_BASE_URL".to_owned(), model.base_url()));
            variables.push(("OPENAI_API_KEY".to_owned(), KEY.to_owned()));
            variables.push(("TURNWRIGHT_MODEL".to_owned(), "scripted".to_owned()));
        }
        if !self.has_surroundings {
            let names = ["TURNWRIGHT_SURROUNDINGS", "TURNWRIGHT_FIND_CHECKS"];
            variables.extend(names.map(|name| (name.to_owned(), "0".to_owned())));
        }
        variables.extend(self.variables);
        let mut launch = Launch {
            home: home.path().to_owned(),
            arguments: self.arguments,
            variables,
            namespace_script: self.namespace_script,
        };
        let (transport, pipes) = T::start(&launch);
        // A restarted agent runs outside of the namespace.
        launch.namespace_script = None;
        TestAgent {
            transport,
            stdin: Some(pipes.stdin),
            messages: pipes.messages,
            log: Vec::new(),
            consumed: 0,
            sent_requests: Vec::new(),
            next_id: 1,
            session: String::new(),
            model,
            workspace,
            home,
            launch,
            capabilities: self.capabilities,
            servers: self.servers,
            permission: self.permission,
            allows_stderr: self.allows_stderr,
            has_ended: false,
            told_of_no_sandbox: 0,
            protocol: self.protocol,
            hosted: self.hosted,
        }
    }

    /// Starts the agent and initializes the connection.
    #[must_use]
    pub fn initialize(self) -> TestAgent<T> {
        let mut agent = self.spawn();
        agent.initialize_connection();
        agent
    }

    /// Starts the agent, initializes the connection and opens a session in the workspace.
    #[must_use]
    pub fn start(self) -> TestAgent<T> {
        let mut agent = self.initialize();
        agent.session = agent.new_session();
        agent
    }
}
