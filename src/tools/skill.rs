//! `skill`: loads the text of a skill.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::arguments::{NAME, ShownArgument};
use super::{CallPlan, CallSite, OfferContext, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, ToolKind, escape_hidden_line};
use turnwright_types::message::ToolSpec;
use turnwright_types::text;

/// The least similarity (0 to 1) of a name that is suggested.
const MIN_SIMILARITY: f64 = 0.5;
const MAX_ARGS_BYTES: usize = 4 * 1024;

/// Load a skill: instructions for a kind of task.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LoadSkill {
    /// Its name
    #[serde(alias = "skill", alias = "skill_name")]
    name: String,
    /// Arguments, as the user gave them
    #[serde(default, alias = "arguments")]
    args: String,
}

impl Tool for LoadSkill {
    const NAME: &'static str = "skill";
    const KIND: ToolKind = ToolKind::Read;
    const PENDING_TITLE: &'static str = "Skill";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[NAME];
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    fn is_offered(offer: &OfferContext) -> bool {
        !offer.skills.is_empty()
    }

    fn adapt_spec(spec: &mut ToolSpec, offer: &OfferContext) {
        if let Some(Value::Object(name)) = spec.parameters.pointer_mut("/properties/name") {
            name.insert("enum".to_owned(), json!(offer.skills));
        }
    }

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        let name = text::cut(escape_hidden_line(self.name.trim()), 100);
        let title = format!("Skill: {name}");
        CallPlan::in_session(CallView::new(title, Self::KIND))
    }

    async fn run(self, (): (), _: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let known = &ctx.env.skills;
        let skills = known.skills().unwrap_or_default();
        let name = self.name.trim().to_owned();
        let Some(skill) = skills.iter().find(|skill| skill.name == name).cloned() else {
            return Err(unknown_skill_message(&name, &known.names()).into());
        };
        if skill.is_user_only {
            return Err(format!("Only the user can run it, by typing `/{name}`: say so.").into());
        }
        if self.args.len() > MAX_ARGS_BYTES {
            return Err(format!(
                "`args` has more than {MAX_ARGS_BYTES} bytes. {name} was not loaded: shorten it."
            )
            .into());
        }
        let folder = skill.folder.clone();
        let args = self.args.trim().to_owned();
        let loading = spawn_blocking(move || Some((skill.load(&self.args)?, skill.load("")?)));
        match loading.await {
            Ok(Some((_, plain))) if !known.mark_loaded(&name, &plain) => {
                let with = match args.as_str() {
                    "" => String::new(),
                    words => format!(" Arguments now: {words}"),
                };
                let text = format!("{name} is loaded already: its text stands above.{with}");
                Ok(loaded_outcome(text))
            }
            Ok(Some((text, _))) => {
                // The skill's text refers to the files in its folder.
                ctx.env.files.roots().allow_read(folder);
                Ok(loaded_outcome(text))
            }
            _ => Err(format!("{name} cannot be read: its SKILL.md is gone.").into()),
        }
    }
}

fn loaded_outcome(text: String) -> ToolOutcome {
    let raw = json!({ "bytes": text.len() });
    ToolOutcome::done(text, Vec::new(), raw)
}

fn unknown_skill_message(name: &str, names: &[String]) -> String {
    let name = text::cut(escape_hidden_line(name), 100);
    if names.is_empty() {
        return "There are no skills here.".to_owned();
    }
    let mut near: Vec<_> = names
        .iter()
        .map(|known| {
            let alike = strsim::normalized_damerau_levenshtein(&name.to_lowercase(), known);
            (alike, known.as_str())
        })
        .filter(|(alike, _)| *alike >= MIN_SIMILARITY)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near: Vec<_> = near.into_iter().take(3).map(|(_, known)| known).collect();
    if near.is_empty() {
        return format!("There is no skill \"{name}\". There are: {}.", names.join(", "));
    }
    format!("There is no skill \"{name}\". Did you mean {}?", near.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tool;

    #[test]
    fn an_unknown_skill_is_answered_with_the_nearest_names() {
        let names = ["release-notes", "deploy"].map(str::to_owned);
        assert_eq!(unknown_skill_message("x", &[]), "There are no skills here.");
        assert_eq!(
            unknown_skill_message("release_note", &names),
            "There is no skill \"release_note\". Did you mean release-notes?"
        );
        assert_eq!(
            unknown_skill_message("cook", &names),
            "There is no skill \"cook\". There are: release-notes, deploy."
        );
    }

    #[test]
    fn it_is_offered_with_the_names_of_the_skills_if_there_are_any() {
        let tool = tool::<LoadSkill>();
        assert!(tool.spec(&OfferContext::default()).is_none());
        let offer = OfferContext { skills: vec!["deploy".to_owned()], ..OfferContext::default() };
        let spec = tool.spec(&offer).unwrap();
        assert_eq!(spec.parameters["properties"]["name"]["enum"], json!(["deploy"]));
    }
}
