//! Finds out which commands and helpers of a stored conversation were running when it was last open. Pure.

use crate::tools::AGENT_TOOL;
use turnwright_store::{Entry, StoredEntry};
use turnwright_types::message::{Message, PromptPart};

/// The words behind the names in a line that tells of an end.
const ENDS: [&str; 4] = [" ended", " is done]", " has failed]", " has crashed"];

/// The names of the commands and helpers that the model believes to be running.
#[derive(Debug, Default)]
pub(super) struct RunningWork(Vec<String>);

impl RunningWork {
    /// Adds what an entry has started, and removes what the model was told to have ended.
    pub(super) fn note(&mut self, stored: &StoredEntry) {
        if let Entry::Message { message, .. } = &stored.entry
            && let Message::User(prompt) = message.as_ref()
        {
            for part in &prompt.parts {
                if let PromptPart::Context(text) = part {
                    self.remove_ended(text);
                }
            }
        }
        for row in &stored.calls {
            let raw = &row.outcome.raw_output;
            let helper = raw["id"].as_str().filter(|_| row.tool == AGENT_TOOL);
            if let Some(helper) = helper {
                self.0.push(format!("helper {helper}"));
            } else if let Some(job) = raw["job"].as_str() {
                self.0.retain(|running| running != job);
                if raw["ended"].as_str().is_some_and(|ended| ended.contains("running")) {
                    self.0.push(job.to_owned());
                }
            }
            self.remove_ended(&row.outcome.text);
        }
    }

    /// Removes what a line such as `[p1, helper h3 (explore: look) ended …]` names.
    fn remove_ended(&mut self, text: &str) {
        for line in text.lines() {
            let Some(told) = line.strip_prefix('[') else { continue };
            let Some(end) = ENDS.iter().filter_map(|end| told.find(end)).min() else { continue };
            for part in told[..end].split(", ") {
                let name = part.split(" (").next().unwrap_or(part);
                self.0.retain(|running| running != name);
            }
        }
    }

    /// The line for the model; `None` if nothing was running.
    pub(super) fn end_line(&self) -> Option<String> {
        let names = self.0.join(", ");
        (!names.is_empty()).then(|| {
            format!("[{names} ended with the session when the agent closed it or ended]\n")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_was_told_to_have_ended_is_not_running() {
        for (told, expected) in [
            ("", "[p1, p12, helper h3 ended"),
            ("[p1 ended: exit 0; exec_output id=p1 has its output]\n", "[p12, helper h3 ended"),
            ("text\n[helper h3 (explore: look) is done]\nFound.", "[p1, p12 ended"),
            ("[helper h3 (explore: look) has failed] It is full.", "[p1, p12 ended"),
            ("[p1 running for 2.0 s]\np12 has ended", "[p1, p12, helper h3 ended"),
            ("[INFO] p1 has ended\n[step p12 ended]\n[h3 ended]", "[p1, p12, helper h3 ended"),
            ("[helper h3 (explore: p1, p12) is done]\nFound.", "[p1, p12 ended"),
            ("[helper h33 (explore: h3) is done]\nFound.", "[p1, p12, helper h3 ended"),
        ] {
            let mut work = RunningWork(["p1", "p12", "helper h3"].map(str::to_owned).to_vec());
            work.remove_ended(told);
            let line = work.end_line().unwrap();
            assert!(line.starts_with(expected), "{told}: {line}");
            work.remove_ended(&line);
            assert_eq!(work.end_line(), None, "{line}");
        }
    }
}
