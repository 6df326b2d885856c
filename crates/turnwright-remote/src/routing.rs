//! The envelope of a message, as far as the HTTP transport has to know it: which stream of events an answer
//! belongs to, and which session a request is about.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The methods whose requests are about a session, which must be named.
const SESSION_METHODS: [&str; 10] = [
    "session/cancel",
    "session/close",
    "session/delete",
    "session/fork",
    "session/load",
    "session/prompt",
    "session/resume",
    "session/set_config_option",
    "session/set_mode",
    "session/set_model",
];

/// The parts of a message that determine its route.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Envelope<'a> {
    /// The text of the id.
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SessionParams {
    #[serde(default, rename = "sessionId")]
    session_id: Option<String>,
}

impl<'a> Envelope<'a> {
    /// Reads a message. `None` if it is not a JSON object.
    pub(crate) fn read(message: &'a [u8]) -> Option<Envelope<'a>> {
        serde_json::from_slice(message).ok()
    }

    /// The session that the message names. Messages about the connection itself name none.
    pub(crate) fn session(&self) -> Option<String> {
        if self.is_about_connection() {
            return None;
        }
        let params: SessionParams = serde_json::from_str(self.params?.get()).ok()?;
        params.session_id
    }

    fn is_about_connection(&self) -> bool {
        self.method.as_deref().is_none_or(|method| method.starts_with("$/"))
    }

    /// True if this is a request, which will be answered.
    pub(crate) fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some_and(|id| id.get() != "null")
    }

    pub(crate) fn is_failure(&self) -> bool {
        self.error.is_some()
    }
}

/// Finds the session of a client's message, whose stream gets the answer. The header may name it instead of the
/// parameters, to which it is then added.
///
/// # Errors
/// Returns the text for the client if the session is missing or they disagree.
pub(crate) fn route(
    message: Vec<u8>,
    header: Option<&str>,
) -> Result<(Vec<u8>, Option<String>), &'static str> {
    let Some(envelope) = Envelope::read(&message) else { return Ok((message, None)) };
    if envelope.is_about_connection() {
        return Ok((message, None));
    }
    let needs_session =
        envelope.method.as_deref().is_some_and(|method| SESSION_METHODS.contains(&method));
    match (envelope.session(), header) {
        (Some(named), Some(header)) if named != header => {
            Err("The header Acp-Session-Id names another session than the message.\n")
        }
        (Some(session), _) => Ok((message, Some(session))),
        (None, Some(header)) => Ok((with_session(&message, header)?, Some(header.to_owned()))),
        (None, None) if needs_session => Err(
            "The message must name its session, in `sessionId` or in the header Acp-Session-Id.\n",
        ),
        (None, None) => Ok((message, None)),
    }
}

/// Adds the session to the parameters of a message.
fn with_session(message: &[u8], session: &str) -> Result<Vec<u8>, &'static str> {
    const UNFIT: &str =
        "A message whose session is named by a header must have an object as parameters.\n";
    let mut message: Value = serde_json::from_slice(message).map_err(|_| UNFIT)?;
    let message_fields = message.as_object_mut().ok_or(UNFIT)?;
    let params = message_fields.entry("params").or_insert_with(|| json!({}));
    let params = params.as_object_mut().ok_or(UNFIT)?;
    if params.get("sessionId").is_some_and(|known| !known.is_null()) {
        return Err(UNFIT);
    }
    params.insert("sessionId".to_owned(), session.into());
    serde_json::to_vec(&message).map_err(|_| UNFIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_to_the_stream_of_its_session() {
        let prompt = r#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#;
        let unnamed = r#"{"id":1,"method":"session/prompt","params":{"prompt":[]}}"#;
        let table = [
            (prompt, None, Ok(Some("a"))),
            (prompt, Some("a"), Ok(Some("a"))),
            (prompt, Some("b"), Err(())),
            (unnamed, Some("b"), Ok(Some("b"))),
            (unnamed, None, Err(())),
            (r#"{"method":"session/cancel"}"#, None, Err(())),
            (r#"{"method":"session/cancel"}"#, Some("b"), Ok(Some("b"))),
            (r#"{"method":"session/cancel","params":[1]}"#, Some("b"), Err(())),
            (r#"{"method":"session/cancel","params":{"sessionId":7}}"#, Some("b"), Err(())),
            (r#"{"id":1,"method":"session/new","params":{"cwd":"/"}}"#, None, Ok(None)),
            (r#"{"method":"$/cancel_request","params":{"requestId":1}}"#, Some("b"), Ok(None)),
            (r#"{"id":1,"result":{"sessionId":"a"}}"#, Some("b"), Ok(None)),
            ("not JSON", Some("b"), Ok(None)),
            ("[]", None, Ok(None)),
        ];
        for (message, header, expected) in table {
            let routed = route(message.into(), header);
            let session = routed.as_ref().map(|(_, session)| session.as_deref()).map_err(|_| ());
            assert_eq!(session, expected, "{message} {header:?}");
        }
    }

    #[test]
    fn the_session_of_the_header_is_added_to_the_message() {
        let (message, _) =
            route(br#"{"method":"session/cancel","params":{"a":1}}"#.to_vec(), Some("s")).unwrap();
        let message: Value = serde_json::from_slice(&message).unwrap();
        assert_eq!(message["params"], serde_json::json!({ "a": 1, "sessionId": "s" }));
    }
}
