//! The hosts that a running command wants to reach are judged like requests to them. The question about one takes its
//! place in the queue of all questions, while the command waits.

use futures_util::future::BoxFuture;
use serde_json::json;

use super::{CallRunner, unless_cancelled};
use crate::tools::{HostConsent, ToolCtx};
use turnwright_guard::HostVerdict;
use turnwright_policy::permission::{self, Judgement, PolicyRules, Reason, markdown_code};
use turnwright_types::client::{PermissionAnswer, PermissionRequest};
use turnwright_types::effect::{
    CallContent, CallView, Effect, ToolKind, escape_hidden_line, shorten_title,
};
use turnwright_types::text;
use turnwright_types::update::COMMAND_TOOL;

/// At most this many characters of a command, and of each host, are in the title of the question.
const MAX_TITLE_PART: usize = 50;

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
            let ticket = self.queue.enqueue(effects(hosts));
            let turn = async {
                ticket.wait_for_admission().await;
                ticket.wait_to_ask().await;
            };
            unless_cancelled(&ctx.cancel, turn).await?;
            // The answer to an earlier question may decide.
            let request = match self.judge_hosts(hosts) {
                Judgement::Allowed(_) => return Some(true),
                Judgement::Denied(denial) => {
                    self.deny(denial);
                    return Some(false);
                }
                Judgement::NeedsApproval(request) => request,
            };
            let short = text::clip(escape_hidden_line(command), MAX_TITLE_PART);
            let names: Vec<_> = hosts.iter().map(|host| name_in_title(host)).collect();
            let title = format!("{} wants {}", markdown_code(&short), names.join(", "));
            let lines: Vec<_> = hosts.iter().map(|host| format!("- `{host}`\n")).collect();
            let rules = self.env.shared.rules.get();
            let description = request.description(&rules, self.env.mode());
            let about = format!("{}\n\n{ABOUT_HOSTS}", (lines.concat() + &description).trim_end());
            let question = PermissionRequest {
                call: ctx.call.clone(),
                name: COMMAND_TOOL.to_owned(),
                view: CallView::new(shorten_title(title), ToolKind::Fetch),
                content: vec![CallContent::Text(about)],
                raw_input: json!({ "command": command, "hosts": hosts }),
                choices: request.choices(),
                is_bounded: false,
                in_background: false,
            };
            let answer = self.ask_client(question, ctx).await;
            let is_chosen = matches!(answer, PermissionAnswer::Chosen(_));
            is_chosen.then(|| self.resolve(request, answer).is_ok())
        })
    }
}

impl CallRunner {
    fn judge_hosts(&self, hosts: &[String]) -> Judgement {
        let mut rules = PolicyRules::clone(&self.env.shared.rules.get());
        rules.rules.retain(|rule| !rule.allows_any_host());
        let mode = self.env.mode();
        permission::judge(&rules, mode, &self.grants.lock(), effects(hosts))
    }
}

/// The name of a host, or its end, which tells whose it is.
fn name_in_title(host: &str) -> String {
    let end = text::last_chars(host, MAX_TITLE_PART);
    if end.len() < host.len() { format!("…{end}") } else { host.to_owned() }
}

fn effects(hosts: &[String]) -> Vec<Effect> {
    hosts.iter().map(|host| Effect::Fetch { host: host.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_shown_by_its_end() {
        assert_eq!(name_in_title("registry.npmjs.org"), "registry.npmjs.org");
        let name = format!("registry.npmjs.org.{}.evil.example", "a".repeat(60));
        let shown = name_in_title(&name);
        assert!(shown.starts_with('…') && shown.ends_with(".evil.example"), "{shown}");
    }
}
