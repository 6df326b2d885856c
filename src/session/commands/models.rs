//! `/models` lists the models that can be chosen.

use std::sync::Arc;

use super::{CommandCall, PromptWork, SessionActor, finish_after, say_when_known};
use crate::error::{as_sentence, error_chain};
use crate::session::SessionHost;
use turnwright_llm::Model;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let host = Arc::clone(&session.host);
    let conversation = session.conversation.clone();
    finish_after(session, async move {
        let model = conversation.selection.get().model;
        say_when_known(&conversation, message, &call.cancel, list(&host, &model)).await
    })
}

/// Lists the models of this model's provider, and the others of the settings.
async fn list(host: &SessionHost, model: &Arc<dyn Model>) -> String {
    let may_list = host.may_list_models();
    let listed = if may_list { host.models.list(model.as_ref()).await } else { Ok(Vec::new()) };
    let names = match listed {
        Ok(names) => names,
        Err(error) => {
            let why = error_chain(&error);
            return as_sentence(format!("The models could not be listed: {why}"));
        }
    };
    let mut names: Vec<String> = names
        .iter()
        .map(|name| {
            let mark = if name == model.name() { " (in use)" } else { "" };
            format!("* `{name}`{mark}\n")
        })
        .collect();
    let others = host.model_choices().into_iter().map(|name| format!("* `{name}`\n"));
    let current = format!("* `{}`\n", model.name());
    let in_use = format!("* `{}` (in use)\n", model.name());
    let others: Vec<_> = others.filter(|line| *line != current && !names.contains(line)).collect();
    names.extend(others);
    if !names.contains(&in_use) {
        names.insert(0, in_use);
    }
    if !may_list {
        names.push("\nThe provider was not asked, because `list_models` is off.".to_owned());
    }
    names.concat()
}
