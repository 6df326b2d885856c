//! Handles the requests and notifications of a server.

use std::path::PathBuf;
use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, FormElicitationCapability, Implementation, ProgressNotificationParam,
    ProtocolVersion,
};
#[expect(deprecated, reason = "older servers use them")]
use rmcp::model::{ListRootsResult, LoggingMessageNotificationParam, Root};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::Notify;

use super::elicitation::{self, WaitingCalls};
use super::progress::ProgressRouter;
use turnwright_types::effect::escape_hidden_line;

/// Maximum length of a server's log message.
const MAX_LOG_CHARS: usize = 500;

/// Handles what one server sends.
#[derive(Clone, Debug)]
pub(super) struct ServerMessageHandler {
    pub(super) roots: Arc<Vec<PathBuf>>,
    /// Notified when the server's tools or prompts have changed.
    pub(super) changed: Arc<Notify>,
    /// The server's name.
    pub(super) server: String,
    /// True if the clients of its sessions can show forms.
    pub(super) forms: bool,
    pub(super) callers: WaitingCalls,
    /// Receives the progress of running calls.
    pub(super) progress: ProgressRouter,
}

#[expect(deprecated, reason = "roots are deprecated, but older servers request them")]
impl ClientHandler for ServerMessageHandler {
    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, rmcp::ErrorData> {
        Ok(list_roots_result(&self.roots))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        // The server may withdraw the question.
        let asking = elicitation::ask_user(&self.server, &self.callers, params);
        let asked = context.ct.run_until_cancelled(asking).await;
        Ok(asked.unwrap_or_else(|| ElicitResult::new(ElicitationAction::Cancel)))
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let text: String = params.data.to_string().chars().take(MAX_LOG_CHARS).collect();
        tracing::debug!(server = self.server, text = escape_hidden_line(&text), "a server says");
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_progress(
        &self,
        notification: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.deliver(notification);
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::builder().enable_roots().build();
        if self.forms {
            let form = Some(FormElicitationCapability::default());
            let mut elicitation = ElicitationCapability::default();
            elicitation.form = form;
            capabilities.elicitation = Some(elicitation);
        }
        let about = Implementation::new("turnwright", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, about).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

/// Converts folders to the roots that a server is told.
#[expect(deprecated, reason = "older servers use them")]
pub(super) fn list_roots_result(folders: &[PathBuf]) -> ListRootsResult {
    let root = |it: &PathBuf| Some(Root::new(url::Url::from_file_path(it).ok()?.to_string()));
    ListRootsResult::new(folders.iter().filter_map(root).collect())
}
