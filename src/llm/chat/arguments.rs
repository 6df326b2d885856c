//! The text of a call's arguments → an object, or the reason why not, written for the model.
//!
//! Arguments that parse as they are run; the repairs below are those that cannot change what the
//! model meant. Missing quotes or braces are never completed: that would run half a command or
//! write half a file.

use serde_json::{Map, Value};

use super::wire::mend_surrogates;
use crate::message::Arguments;

/// Understands the arguments of a call of a whole answer.
pub(in crate::llm) fn understand(text: String) -> Arguments {
    if matches!(text.trim(), "" | "null") {
        return Arguments::Object(Value::Object(Map::new()));
    }
    let reason = match read(&text) {
        Ok(value @ Value::Object(_)) => return Arguments::Object(value),
        Ok(Value::String(inner)) => match read(&inner) {
            // Encoded twice.
            Ok(value @ Value::Object(_)) => return Arguments::Object(value),
            _ => "The arguments must be a JSON object, not a string. Nothing was executed.".into(),
        },
        Ok(_) => "The arguments must be a JSON object. Nothing was executed.".to_owned(),
        Err(error) if error.is_eof() => format!(
            "The arguments are not valid JSON: they stop after {} bytes ({error}). Nothing was \
             executed. Send the whole call again.",
            text.len()
        ),
        Err(error) => {
            format!("The arguments are not valid JSON ({error}). Nothing was executed.")
        }
    };
    Arguments::Unusable { text, reason }
}

/// The arguments of a call of an answer that hit the output limit. Which call was cut cannot be
/// told for sure: some servers close the braces of half a call.
pub(in crate::llm) fn cut_off(text: String) -> Arguments {
    let reason = format!(
        "The answer was cut off at the output limit, the arguments of this call after {} bytes. \
         Nothing was executed. Send less at once: write the first part with write_file, then \
         append.",
        text.len()
    );
    Arguments::Unusable { text, reason }
}

/// Whether the text is one whole object. Cheap for one that has not ended yet.
pub(in crate::llm) fn is_object(text: &str) -> bool {
    text.trim_end().ends_with('}') && serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

fn read(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| {
        let mended = mend_surrogates(&escape_controls(text));
        let mut values = serde_json::Deserializer::from_str(&mended).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) if is_litter(mended[values.byte_offset()..].trim()) => Ok(value),
            _ => Err(error),
        }
    })
}

/// Whether what follows a whole value holds nothing that the model can have meant as a part of
/// it: brackets closed twice, a fence, the closing tag of a template.
fn is_litter(rest: &str) -> bool {
    let is_tag = rest.starts_with('<') && rest.ends_with('>') && !rest.contains(['{', '[', '"']);
    is_tag || rest.chars().all(|it| it.is_whitespace() || "}])`;,".contains(it))
}

/// Raw control characters inside strings, which JSON forbids and models write, as escapes.
fn escape_controls(text: &str) -> String {
    let mut result = String::with_capacity(text.len() + 16);
    let (mut inside, mut escaped) = (false, false);
    for char in text.chars() {
        match char {
            '"' if !escaped => inside = !inside,
            // Not after a backslash: that would leave the escape as text in the result.
            _ if inside && !escaped && char.is_control() => {
                result.push_str(&format!("\\u{:04x}", u32::from(char)));
                continue;
            }
            _ => {}
        }
        escaped = inside && char == '\\' && !escaped;
        result.push(char);
    }
    result
}
