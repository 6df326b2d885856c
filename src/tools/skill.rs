//! `skill`: the text of a skill, when there is work that it is for.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Offer, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Effect, Kind, Target, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_types::message::ToolSpec;
use turnwright_policy::permission::Pass;

/// How much two names have in common if the one may be meant by the other.
const ALIKE: f64 = 0.5;
/// Bytes of arguments.
const LONGEST_ARGS: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct LoadSkill;

/// Load a skill: instructions for a certain sort of work.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// Which
    #[serde(alias = "skill", alias = "skill_name")]
    name: String,
    /// Arguments, as the user gave them
    #[serde(default, alias = "arguments")]
    args: String,
}

impl Tool for LoadSkill {
    const NAME: &'static str = "skill";
    const KIND: Kind = Kind::Read;
    const VERB: &'static str = "Skill";
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn is_offered(&self, offer: &Offer) -> bool {
        !offer.skills.is_empty()
    }

    fn adapt(&self, spec: &mut ToolSpec, offer: &Offer) {
        if let Some(Value::Object(name)) = spec.parameters.pointer_mut("/properties/name") {
            name.insert("enum".to_owned(), json!(offer.skills));
        }
    }

    fn view(&self, args: &Args, _: &[Target], _: &Roots) -> CallView {
        let name: String = visible_line(args.name.trim()).chars().take(100).collect();
        CallView { title: format!("Skill: {name}"), kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, _: &Args, _: &[Target]) -> Vec<Effect> {
        vec![Effect::Session]
    }

    async fn run(&self, args: Args, (): (), _: &Pass, ctx: &ToolCtx) -> Outcome {
        let known = &ctx.bench.skills;
        let skills = known.skills().unwrap_or_default();
        let name = args.name.trim().to_owned();
        let Some(skill) = skills.iter().find(|it| it.name == name && !it.only_user).cloned() else {
            return Outcome::failed(unknown(&name, &known.names()));
        };
        if args.args.len() > LONGEST_ARGS {
            return Outcome::failed(format!(
                "`args` has more than {LONGEST_ARGS} bytes. {name} was not loaded: shorten it."
            ));
        }
        if known.is_loaded(&name) {
            let with = match args.args.trim() {
                "" => String::new(),
                it => format!(" Arguments now: {it}"),
            };
            return done(format!("{name} is loaded already: its text stands above.{with}"));
        }
        let folder = skill.folder.clone();
        let loading = tokio::task::spawn_blocking(move || skill.load(&args.args));
        match loading.await {
            Ok(Some(text)) => {
                known.note(&name);
                // It is of no use without the files that come with it.
                ctx.bench.files.roots().let_read(folder);
                done(text)
            }
            _ => Outcome::failed(format!("{name} cannot be read: its SKILL.md is gone.")),
        }
    }
}

fn done(text: String) -> Outcome {
    let raw = json!({ "bytes": text.len() });
    Outcome { ok: true, text, view: None, content: Vec::new(), raw, images: Vec::new() }
}

fn unknown(name: &str, names: &[String]) -> String {
    let name: String = visible_line(name).chars().take(100).collect();
    if names.is_empty() {
        return "There are no skills here.".to_owned();
    }
    let mut near: Vec<_> = names
        .iter()
        .map(|it| (strsim::normalized_damerau_levenshtein(&name.to_lowercase(), it), it.as_str()))
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near: Vec<_> = near.into_iter().take(3).map(|(_, it)| it).collect();
    if near.is_empty() {
        return format!("There is no skill \"{name}\". There are: {}.", names.join(", "));
    }
    format!("There is no skill \"{name}\". Did you mean {}?", near.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tools::AnyTool;

    #[test]
    fn an_unknown_skill_is_answered_with_the_nearest_names() {
        let names = ["release-notes", "deploy"].map(str::to_owned);
        assert_eq!(unknown("x", &[]), "There are no skills here.");
        assert_eq!(
            unknown("release_note", &names),
            "There is no skill \"release_note\". Did you mean release-notes?"
        );
        assert_eq!(
            unknown("cook", &names),
            "There is no skill \"cook\". There are: release-notes, deploy."
        );
    }

    #[test]
    fn it_is_offered_with_the_names_of_the_skills_if_there_are_any() {
        let tool: Arc<dyn AnyTool> = Arc::new(LoadSkill);
        assert!(tool.spec(&Offer::default()).is_none());
        let offer = Offer { skills: vec!["deploy".to_owned()], ..Offer::default() };
        let spec = tool.spec(&offer).unwrap();
        assert_eq!(spec.parameters["properties"]["name"]["enum"], json!(["deploy"]));
    }
}
