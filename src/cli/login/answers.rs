//! Interprets the answers to the questions. Nothing is read or written here.

use crate::config::looks_like_key;

/// The most models that are shown.
pub(super) const MAX_SHOWN: usize = 30;

/// No provider has a longer name, and no key is as short.
const MAX_NAME: usize = 16;

/// Finds the one of `names` that an answer means: the number of one of the first `shown`, the name, or the
/// beginning of only one name.
pub(super) fn choose(answer: &str, names: &[&str], shown: usize) -> Result<usize, String> {
    let answer = answer.trim().to_lowercase();
    if answer.is_empty() {
        return Err(format!("Enter a number from 1 to {shown}, or a name"));
    }
    if let Ok(number) = answer.parse::<usize>() {
        let is_shown = (1..=shown).contains(&number);
        return is_shown
            .then(|| number - 1)
            .ok_or_else(|| format!("Enter a number from 1 to {shown}, or a name"));
    }
    if let Some(exact) = names.iter().position(|name| name.to_lowercase() == answer) {
        return Ok(exact);
    }
    let all: Vec<usize> = (0..names.len()).collect();
    let matching = all.iter().filter(|index| names[**index].to_lowercase().starts_with(&answer));
    match matching.collect::<Vec<_>>()[..] {
        [one] => Ok(*one),
        [] => Err(format!("Nothing here is called {}", quoted(&answer))),
        ref several => {
            let several: Vec<_> = several.iter().map(|index| names[**index]).collect();
            Err(format!("`{}` may be {}", answer.escape_debug(), several.join(" or ")))
        }
    }
}

/// A name that is not known, as it may be shown. What is longer than any name may be a key that was meant
/// for another question.
pub(super) fn quoted(name: &str) -> String {
    if name.chars().count() > MAX_NAME {
        "what was typed (it may be a key, so it is not shown)".to_owned()
    } else {
        format!("`{}`", name.escape_debug())
    }
}

/// The model that an answer means: the number of one of the first models, or any name, because servers do
/// not list all that they have. Empty for `usual`.
pub(super) fn choose_model(
    answer: &str,
    models: &[String],
    usual: Option<&str>,
) -> Result<Option<String>, String> {
    let answer = answer.trim();
    if answer.is_empty() {
        return Ok(usual.map(str::to_owned));
    }
    if looks_like_key(answer) {
        return Err("That looks like a key, and not like the name of a model".to_owned());
    }
    let shown = models.len().min(MAX_SHOWN);
    match answer.parse::<usize>() {
        Ok(number) if (1..=shown).contains(&number) => Ok(Some(models[number - 1].clone())),
        Ok(_) if shown > 0 => Err(format!("Enter a number from 1 to {shown}, or a name")),
        _ => Ok(Some(answer.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_number_a_name_or_the_beginning_of_one() {
        let names = ["ollama", "openai", "openrouter", "xai", "vllm"];
        for (answer, expected) in [
            ("1", Ok(0)),
            (" 4\n", Ok(3)),
            ("openai", Ok(1)),
            ("OpenRouter", Ok(2)),
            ("ol", Ok(0)),
            // Not shown, but known.
            ("vllm", Ok(4)),
            ("5", Err("from 1 to 4")),
            ("0", Err("from 1 to 4")),
            ("", Err("from 1 to 4")),
            ("open", Err("`open` may be openai or openrouter")),
            ("nobody", Err("Nothing here is called `nobody`")),
            ("sk-0123456789abcdef", Err("Nothing here is called what was typed (it may be a key")),
        ] {
            let found = choose(answer, &names, 4);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{answer}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, _) => panic!("{answer}: {found:?}"),
            }
        }
    }

    #[test]
    fn any_name_of_a_model_can_be_typed() {
        let models: Vec<_> = (1..=40).map(|number| format!("m{number}")).collect();
        for (answer, expected) in [
            ("", Some("m3")),
            ("2", Some("m2")),
            ("30", Some("m30")),
            ("31", None),
            ("0", None),
            ("m40", Some("m40")),
            (" org/other:7b ", Some("org/other:7b")),
            ("sk-0123456789abcdef0123", None),
        ] {
            let found = choose_model(answer, &models, Some("m3")).ok().flatten();
            assert_eq!(found.as_deref(), expected, "{answer}");
        }
        let refused = choose_model("sk-0123456789abcdef0123", &models, None).unwrap_err();
        assert!(refused.contains("looks like a key") && !refused.contains("sk-"), "{refused}");
        assert_eq!(choose_model("", &[], None), Ok(None));
        assert_eq!(choose_model("7", &[], None), Ok(Some("7".to_owned())));
    }
}
