//! Runs calls that do not belong to a conversation: the model of an MCP client has made them. They take
//! the same way as the calls of a turn, and their results go back to the caller.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::CallTokens;
use super::runner::{CallOrigin, CallRunner};
use crate::tools::{AnyTool, ToolEnv, ToolOutcome};
use crate::turn::SharedGrants;
use turnwright_types::ids::CallId;

/// Runs standalone calls under one policy and one set of grants.
#[derive(Debug)]
pub(crate) struct StandaloneCalls(CallRunner);

impl StandaloneCalls {
    pub(crate) fn new(env: ToolEnv) -> StandaloneCalls {
        let origin = CallOrigin::McpClient;
        let grants = SharedGrants::default();
        StandaloneCalls(CallRunner::new(Arc::new(env), grants, origin, Arc::default()))
    }

    pub(crate) fn env(&self) -> &Arc<ToolEnv> {
        &self.0.env
    }

    /// Runs a call to its outcome. Failures are outcomes too, with an explanation for the caller.
    pub(crate) async fn run(
        &self,
        id: CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        let tokens = CallTokens::of(&cancel);
        let mut outcome = match self.0.enqueue(id, tool, arguments, tokens).await {
            Ok((call, ticket)) => self.0.clone().run(call, ticket).await.outcome,
            Err(refusal) => ToolOutcome::refused(refusal),
        };
        if let Some(news) = self.env().command_news() {
            outcome.add_line(&news);
        }
        outcome
    }
}
