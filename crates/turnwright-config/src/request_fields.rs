//! Fields that the user's settings add to each request to a model, such as `temperature`.

use serde_json::{Map, Value};

/// The fields that the agent sets itself, and what to set instead.
const RESERVED: &[(&str, &str)] = &[
    ("model", "name the model in `model`"),
    ("messages", "it holds the conversation"),
    ("input", "it holds the conversation"),
    ("instructions", "set `agent.system_prompt`"),
    ("system", "set `agent.system_prompt`"),
    ("tools", "the agent decides which tools there are"),
    ("tool_choice", "the agent needs the model's choice"),
    ("functions", "the agent decides which tools there are"),
    ("function_call", "the agent needs the model's choice"),
    ("stream", "answers are always streamed"),
    ("stream_options", "set the quirk `stream_options`"),
    ("n", "one answer is read"),
    ("background", "answers are always streamed"),
    ("previous_response_id", "the conversation is sent with each request"),
    ("conversation", "the conversation is sent with each request"),
    ("max_tokens", "set `max_output`"),
    ("max_completion_tokens", "set `max_output`"),
    ("max_output_tokens", "set `max_output`"),
];

/// The fields of all these tables, of which later ones override earlier ones, without those that the agent
/// sets itself.
pub(crate) fn merge<'a>(
    tables: impl IntoIterator<Item = &'a Map<String, Value>>,
) -> Map<String, Value> {
    let fields = tables.into_iter().flatten().filter(|field| reserved(field.0).is_none());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The errors in the fields of the setting with this key, a sentence each.
pub(crate) fn wrong_fields(key: &str, fields: &Map<String, Value>) -> Vec<String> {
    let wrong = fields.keys().filter_map(|name| {
        let why = reserved(name)?;
        Some(format!("`{key}` contains `{name}`, which the agent sets itself: {why}"))
    });
    wrong.collect()
}

/// The fields in one line, for display.
pub(crate) fn describe(fields: &Map<String, Value>) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    fields.join(", ")
}

fn reserved(name: &str) -> Option<&'static str> {
    RESERVED.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_model_s_fields_override_its_provider_s_and_reserved_ones_are_refused_in_words() {
        let provider = map(&json!({ "temperature": 0.2, "top_p": 0.9, "stream": false }));
        let model = map(&json!({ "temperature": 1, "messages": [], "max_tokens": 7 }));
        let merged = merge([&provider, &model]);
        assert_eq!(Value::from(merged.clone()), json!({ "temperature": 1, "top_p": 0.9 }));
        assert_eq!(describe(&merged), "temperature = 1, top_p = 0.9");
        assert_eq!(wrong_fields("providers.x.request", &merged), [""; 0]);
        let wrong = wrong_fields("providers.x.model.\"m\".request", &model);
        assert_eq!(
            wrong,
            [
                "`providers.x.model.\"m\".request` contains `messages`, which the agent sets itself: it \
                 holds the conversation",
                "`providers.x.model.\"m\".request` contains `max_tokens`, which the agent sets itself: \
                 set `max_output`",
            ]
        );
    }
}
