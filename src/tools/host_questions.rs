//! The hosts that a command wants to reach while it runs: the call that waits for it asks the user about those that are
//! not decided, one after another. Once no call waits for it, they are refused.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::ToolCtx;
use turnwright_guard::{CommandHosts, HostQuestion, HostVerdict};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::Effect;

/// The user is asked at most this often for one command.
const MAX_QUESTIONS: usize = 16;

/// Decides about hosts, by the rules and the answers of a conversation.
pub(crate) trait HostConsent: Debug + Send + Sync {
    /// The verdict on a host without a question.
    fn verdict(&self, host: &str) -> HostVerdict;

    /// Asks the user if a command may reach these hosts. Returns `None` if there is no answer.
    fn ask<'a>(
        &'a self,
        ctx: &'a ToolCtx,
        command: &'a str,
        hosts: &'a [String],
    ) -> BoxFuture<'a, Option<bool>>;
}

/// The questions of one command.
pub(super) struct HostQuestions {
    hosts: Arc<CommandHosts>,
    questions: mpsc::Receiver<HostQuestion>,
    /// The line of the command.
    command: String,
    asked: usize,
}

impl HostQuestions {
    /// The questions of a command that this pass permits.
    pub(super) fn new(pass: &Pass, command: &str, ctx: &ToolCtx) -> HostQuestions {
        let allowed = pass.effects().iter().filter_map(|effect| match effect {
            Effect::Fetch { host } => Some(host.clone()),
            _ => None,
        });
        let listed = ctx.env.shared.confinement.hosts.clone();
        let consent = Arc::clone(&ctx.hosts);
        let (hosts, questions) =
            CommandHosts::new(listed, allowed, move |host| consent.verdict(host));
        HostQuestions { hosts: Arc::new(hosts), questions, command: command.to_owned(), asked: 0 }
    }

    pub(super) fn hosts(&self) -> &Arc<CommandHosts> {
        &self.hosts
    }

    /// Waits for the next question. Never returns if the command can have none.
    pub(super) async fn next(questions: &mut Option<HostQuestions>) -> HostQuestion {
        let next = match questions {
            Some(all) if all.asked < MAX_QUESTIONS => all.questions.recv().await,
            _ => None,
        };
        if let Some(question) = next {
            return question;
        }
        // All that wait for an answer are refused.
        *questions = None;
        std::future::pending().await
    }

    /// Asks the user about these hosts.
    pub(super) async fn ask(&mut self, hosts: Vec<String>, ctx: &ToolCtx) {
        self.asked += 1;
        if let Some(is_allowed) = ctx.hosts.ask(ctx, &self.command, &hosts).await {
            self.hosts.answer(hosts, is_allowed);
        }
    }
}
