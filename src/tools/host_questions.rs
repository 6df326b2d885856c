//! Questions about the hosts that a running command tries to reach. The call that waits for the command asks the user
//! about undecided hosts, one question at a time. Once no call waits for the command, such hosts are refused.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::ToolCtx;
use turnwright_guard::{CommandHosts, HostQuestion, HostVerdict};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::Effect;

/// The most questions that the user is asked for one command.
const MAX_QUESTIONS: usize = 16;

/// Decides about hosts by the rules and the user's earlier answers in a conversation.
pub(crate) trait HostConsent: Debug + Send + Sync {
    /// Returns the verdict on a host without asking the user.
    fn verdict(&self, host: &str) -> HostVerdict;

    /// Asks the user whether a command may reach these hosts. Returns `None` if there is no answer.
    fn ask<'a>(
        &'a self,
        ctx: &'a ToolCtx,
        command: &'a str,
        hosts: &'a [String],
    ) -> BoxFuture<'a, Option<bool>>;
}

/// The questions about the hosts of one command.
pub(super) struct HostQuestions {
    pub(super) hosts: Arc<CommandHosts>,
    questions: mpsc::Receiver<HostQuestion>,
    asked: usize,
}

impl HostQuestions {
    /// Prepares the questions of a command that `pass` permits.
    pub(super) fn new(pass: &Pass, ctx: &ToolCtx) -> HostQuestions {
        let allowed = pass.effects().iter().filter_map(|effect| match effect {
            Effect::Fetch { host } => Some(host.clone()),
            _ => None,
        });
        let listed = ctx.env.shared.confinement.hosts.clone();
        let consent = Arc::clone(&ctx.hosts);
        let (hosts, questions) =
            CommandHosts::new(listed, allowed, move |host| consent.verdict(host));
        HostQuestions { hosts: Arc::new(hosts), questions, asked: 0 }
    }

    /// Waits for the next question. Never completes if there are no more questions.
    pub(super) async fn next(questions: &mut Option<HostQuestions>) -> HostQuestion {
        let next = match questions {
            Some(all) if all.asked < MAX_QUESTIONS => all.questions.recv().await,
            _ => None,
        };
        if let Some(question) = next {
            return question;
        }
        // Dropping the receiver refuses every host that still waits for an answer.
        *questions = None;
        std::future::pending().await
    }

    /// Asks the user about the hosts that a command wants.
    pub(super) async fn ask(&mut self, command: &str, hosts: Vec<String>, ctx: &ToolCtx) {
        self.asked += 1;
        if let Some(is_allowed) = ctx.hosts.ask(ctx, command, &hosts).await {
            self.hosts.answer(hosts, is_allowed);
        }
    }
}
