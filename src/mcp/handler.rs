//! What a server may ask of us, and what it tells without being asked.

use std::path::PathBuf;
use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, FormElicitationCapability, Implementation, ProgressNotificationParam,
    ProtocolVersion,
};
#[expect(deprecated, reason = "asked for by servers that are not new")]
use rmcp::model::{ListRootsResult, LoggingMessageNotificationParam, Root};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::Notify;

use super::elicit::{self, Callers};
use super::progress::Progress;
use turnwright_types::effect::visible_line;

/// Characters of what a server says.
const LONGEST_WORDS: usize = 500;

/// Answers one server.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    pub(super) roots: Arc<Vec<PathBuf>>,
    /// Its tools or prompts have changed.
    pub(super) changed: Arc<Notify>,
    /// The server's name.
    pub(super) server: String,
    /// Its users show forms.
    pub(super) forms: bool,
    pub(super) callers: Callers,
    /// Its calls that run.
    pub(super) progress: Progress,
}

#[expect(deprecated, reason = "roots are deprecated, and asked for by servers that are not new")]
impl ClientHandler for Handler {
    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, rmcp::ErrorData> {
        Ok(roots(&self.roots))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        // The server may withdraw it.
        let asking = elicit::ask(&self.server, &self.callers, params);
        let asked = context.ct.run_until_cancelled(asking).await;
        Ok(asked.unwrap_or_else(|| ElicitResult::new(ElicitationAction::Cancel)))
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let text: String = params.data.to_string().chars().take(LONGEST_WORDS).collect();
        tracing::debug!(server = self.server, text = visible_line(&text), "a server says");
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_progress(
        &self,
        news: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.tell(news);
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

/// The folders of a session, for a server.
#[expect(deprecated, reason = "asked for by servers that are not new")]
pub(super) fn roots(folders: &[PathBuf]) -> ListRootsResult {
    let root = |it: &PathBuf| Some(Root::new(url::Url::from_file_path(it).ok()?.to_string()));
    ListRootsResult::new(folders.iter().filter_map(root).collect())
}
