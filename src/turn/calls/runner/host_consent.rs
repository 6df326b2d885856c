//! The hosts that a running command wants to reach are judged like requests to them. The question about one takes its
//! place in the queue of all questions, while the command waits.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::json;

use super::{CallRunner, unless_cancelled};
use crate::tools::{HostConsent, ToolCtx};
use turnwright_guard::HostVerdict;
use turnwright_policy::permission::{
    self, ApprovalRequest, Judgement, Pattern, PolicyRules, Reason, RuleAction, markdown_code,
};
use turnwright_types::client::{PermissionAnswer, PermissionRequest};
use turnwright_types::effect::{
    CallContent, CallView, Effect, ToolKind, escape_hidden_line, shorten_title,
};
use turnwright_types::text;
use turnwright_types::update::COMMAND_TOOL;

/// At most this many characters of a command are in the question.
const MAX_COMMAND_CHARS: usize = 60;

/// The facts that the user should know before the answer.
const ABOUT_HOSTS: &str = "The command waits for your answer. What it sends there is not looked into. An answer for the session holds \
                           for all commands, and for `web_fetch`; `/permissions keep` keeps it for the project.";

impl HostConsent for CallRunner {
    fn verdict(&self, host: &str) -> HostVerdict {
        match self.judge_hosts(&[host.to_owned()]) {
            Judgement::Allowed(_) => HostVerdict::Allow,
            Judgement::Denied(_) => HostVerdict::Deny,
            Judgement::NeedsApproval(request) => {
                let mut findings = request.decision().findings.iter();
                let is_rule = findings.any(|finding| matches!(finding.reason, Reason::Rule(_)));
                if is_rule { HostVerdict::MustAsk } else { HostVerdict::Ask }
            }
        }
    }

    fn ask<'a>(
        &'a self,
        ctx: &'a ToolCtx,
        command: &'a str,
        hosts: &'a [String],
    ) -> BoxFuture<'a, Option<bool>> {
        Box::pin(async move {
            // A recording has no questions of running commands.
            if self.env.is_alone || !(self.env.shared.rules.get().asks_about_hosts)() {
                return None;
            }
            let ticket = self.queue.enqueue(effects(hosts));
            let turn = unless_cancelled(&ctx.cancel, async {
                ticket.wait_for_admission().await;
                ticket.wait_to_ask().await;
            });
            turn.await?;
            // The answer to an earlier question may decide.
            match self.judge_hosts(hosts) {
                Judgement::Allowed(_) => Some(true),
                Judgement::Denied(denial) => {
                    self.deny(denial);
                    Some(false)
                }
                Judgement::NeedsApproval(request) => {
                    self.ask_about_hosts(request, ctx, command, hosts).await
                }
            }
        })
    }
}

impl CallRunner {
    fn judge_hosts(&self, hosts: &[String]) -> Judgement {
        let rules = without_wide_rules(self.env.shared.rules.get());
        let mode = self.env.shared.mode.get();
        permission::judge(&rules, mode, &self.grants.lock(), effects(hosts))
    }

    async fn ask_about_hosts(
        &self,
        request: ApprovalRequest,
        ctx: &ToolCtx,
        command: &str,
        hosts: &[String],
    ) -> Option<bool> {
        let short = text::clip(escape_hidden_line(command), MAX_COMMAND_CHARS);
        let title = format!("{} wants {}", markdown_code(&short), hosts.join(", "));
        let rules = self.env.shared.rules.get();
        let description = request.description(&rules, self.env.shared.mode.get());
        let about = [description.as_str(), ABOUT_HOSTS].join("\n\n");
        let question = PermissionRequest {
            call: ctx.call.clone(),
            name: COMMAND_TOOL.to_owned(),
            view: CallView::new(shorten_title(title), ToolKind::Fetch),
            content: vec![CallContent::Text(about.trim_start().to_owned())],
            raw_input: json!({ "command": command, "hosts": hosts }),
            choices: request.choices(),
            is_bounded: false,
            in_background: false,
        };
        let asking = self.env.client.request_permission(question);
        match unless_cancelled(&ctx.cancel, asking).await? {
            // The client says that the user has ended the turn.
            PermissionAnswer::Cancelled => {
                if !self.is_for_mcp_client {
                    ctx.turn.cancel();
                }
                None
            }
            PermissionAnswer::Unclear(_) => None,
            answer @ PermissionAnswer::Chosen(_) => Some(self.resolve(request, answer).is_ok()),
        }
    }
}

fn effects(hosts: &[String]) -> Vec<Effect> {
    hosts.iter().map(|host| Effect::Fetch { host: host.clone() }).collect()
}

/// The rules without those that allow requests to any host: they were written for pages that the model reads, and not
/// for programs that send what they like.
fn without_wide_rules(rules: Arc<PolicyRules>) -> Arc<PolicyRules> {
    let is_wide = |rule: &permission::Rule| {
        rule.action == RuleAction::Allow
            && matches!(&rule.pattern, Pattern::Fetch(domain) if domain == "*")
    };
    if !rules.rules.iter().any(is_wide) {
        return rules;
    }
    let mut narrow = PolicyRules::clone(&rules);
    narrow.rules.retain(|rule| !is_wide(rule));
    Arc::new(narrow)
}
