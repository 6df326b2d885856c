//! Finds out what a refusal is about: one image or images in general, the key of the user or of a gateway, or
//! the size of the context window. A broken or oversized file says nothing about the model's abilities, and a
//! gateway relays its provider's complaint about a key that is not the user's. Does no I/O.

use serde_json::Value;

use super::error_body::number;
use super::{has_any, has_listed};
use crate::{ErrorKind, LlmError};
use turnwright_types::text;

/// Phrases about a single rejected image, in lower case. They only count in messages that mention
/// an image.
const ONE_IMAGE_PHRASES: &str = include_str!("phrases/one_image.txt");

/// The words for images and PDF files in refusals: in English, in MiniMax's messages, in Chinese, and as the place of
/// the image in the request.
const IMAGE_WORDS: &str = include_str!("phrases/image_words.txt");

/// The places of other fields, whose refusals read like those of images.
const OTHER_FIELDS: &[&str] = &["tools", "function", "tool_call", "'name'", "'model'"];

/// Phrases of servers that accept no images at all.
const NO_IMAGES_PHRASES: &str = include_str!("phrases/no_images.txt");

/// Phrases of servers that accept no PDF files at all.
const NO_FILES_PHRASES: &str = include_str!("phrases/no_files.txt");

/// Phrases that leave no doubt that the server accepts no images.
const CERTAINLY_NO_IMAGES: &[&str] = &["at most 0 image", "not support", "not a multimodal"];

/// Phrases about the number of images in a request.
const MANY_IMAGES_PHRASES: &[&str] =
    &["image(s)", "images, exceeding", "image count", "too many images", "too much media"];
/// Phrases that precede the most images that the server accepts.
const MOST_IMAGES_PHRASES: &[&str] =
    &["at most", "maximum of", "max is", "exceeds limit", "up to", " > "];

/// The advice for a gateway that reports a failure of its own because it got no key.
pub(crate) const NO_KEY_ADVICE: &str = "No key is sent, and gateways such as LiteLLM answer so without one: \
                                        run `turnwright login`, or set the key. If it needs none, look \
                                        into the log of the server";

/// The bodies of servers that report a failure without details.
const BARE_FAILURES: [&str; 2] = ["", "Internal Server Error"];

/// The beginnings of a provider's message in LiteLLM, and in gateways that use OpenAI's library for Python.
const RELAYED: [&str; 2] = ["litellm.AuthenticationError", "Error code: 401 - "];

/// Phrases that precede the size of the window. The first match counts. Spaces between phrase and number are skipped.
const LIMIT_PHRASES: &str = include_str!("phrases/window_limit.txt");

/// Phrases that precede the size of the request.
const USED_PHRASES: &str = include_str!("phrases/used_tokens.txt");

/// The plausible sizes of a window.
const PLAUSIBLE_TOKENS: std::ops::RangeInclusive<u64> = 256..=1 << 40;

impl LlmError {
    /// True if the server rejected an image, or images in general.
    pub fn is_about_images(&self) -> bool {
        self.is_about_one_image()
            || self.image_refusal().is_some_and(|message| has_listed(&message, NO_IMAGES_PHRASES))
    }

    /// True if the server rejected one image or PDF file but accepts such media in general.
    pub fn is_about_one_image(&self) -> bool {
        self.image_refusal().is_some_and(|message| {
            has_listed(&message, ONE_IMAGE_PHRASES)
                && !has_any(&message, CERTAINLY_NO_IMAGES)
                && !has_listed(&message, NO_FILES_PHRASES)
        })
    }

    /// True if the server rejected PDF files in general.
    pub fn is_about_files(&self) -> bool {
        self.refusal().is_some_and(|message| has_listed(&message, NO_FILES_PHRASES))
    }

    /// The most images that the server accepts in one request, if it says so. In a request with more than 20 images,
    /// Anthropic refuses large ones, even those that it has accepted before.
    pub fn most_images(&self) -> Option<usize> {
        let message = self.message()?.to_ascii_lowercase();
        if message.contains("many-image requests") {
            return Some(20);
        }
        if !has_any(&message, MANY_IMAGES_PHRASES) {
            return None;
        }
        let most = MOST_IMAGES_PHRASES.iter().find_map(|phrase| number_after(&message, phrase))?;
        usize::try_from(most).ok()
    }

    /// Returns the message of a refusal in lower case if it mentions an image or a PDF file.
    fn image_refusal(&self) -> Option<String> {
        self.refusal().filter(|message| {
            let is_other =
                message.contains("should be a valid string") && has_any(message, OTHER_FIELDS);
            !is_other && has_listed(message, IMAGE_WORDS)
        })
    }

    /// Returns the message of a refusal in lower case.
    fn refusal(&self) -> Option<String> {
        let refusals = [400, 404, 413, 415, 422, 500];
        let is_refusal = self.status().is_none_or(|status| refusals.contains(&status));
        let message = self.message()?.to_ascii_lowercase();
        (is_refusal && !self.quotes_reply()).then_some(message)
    }
}

/// Returns true if the body says only that the server has failed.
pub(crate) fn is_bare_failure(body: &str) -> bool {
    BARE_FAILURES.contains(&body.trim())
}

/// Pairs of hosts of one provider, at each of which only its own keys work.
const SITES: &str = "api.moonshot.ai api.moonshot.cn api.minimax.io api.minimaxi.com api.z.ai open.bigmodel.cn \
                     dashscope-intl.aliyuncs.com dashscope.aliyuncs.com";

/// Returns the host of the provider's other site, if this one is only for its own keys.
pub(crate) fn other_site(host: &str) -> Option<&'static str> {
    let sites: Vec<_> = SITES.split(' ').collect();
    let place = sites.iter().position(|site| *site == host)?;
    Some(sites[place ^ 1])
}

/// Returns the advice about a refused key that is not the user's own.
pub(crate) fn upstream_advice(host: &str, body: &str) -> Option<String> {
    // The server repeats the user's key, so it was called with that key.
    if body.contains("[key]") {
        return None;
    }
    let value = serde_json::from_str::<Value>(body.trim()).unwrap_or_default();
    let is_relayed = has_any(body, &RELAYED)
        || value.pointer("/error/metadata/provider_name").is_some_and(Value::is_string);
    if is_relayed {
        return Some(format!("Check the key that {host} has for its provider"));
    }
    let named = body.split("https://").skip(1).find_map(named_domain)?;
    (!host.split(':').next().unwrap_or_default().ends_with(domain(named))).then(|| {
        format!("Check the key that {host} has for its provider ({named}), or yours if {host} passes it on")
    })
}

/// The host at the start of a text, if keys are made there.
fn named_domain(text: &str) -> Option<&str> {
    let address = text.split([' ', '"', '\\', ')']).next()?;
    let name = address.split('/').next()?.trim_end_matches('.');
    address.contains("key").then_some(name).filter(|name| name.contains('.'))
}

/// The last two labels of a name.
fn domain(name: &str) -> &str {
    let start = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    &name[start..]
}

/// The overflow error with the sizes found in the error's body or in its lower-case message.
pub(crate) fn parse_overflow(body: &Value, text: &str) -> ErrorKind {
    let found = find_tokens(body, text, "n_ctx", text::list_entries(LIMIT_PHRASES));
    let limit = found.filter(|_| !is_minute_limit(text));
    let used = find_tokens(body, text, "n_prompt_tokens", text::list_entries(USED_PHRASES));
    ErrorKind::ContextOverflow { limit, used }
}

/// The number in this field of the body, or else after one of the phrases in the text.
fn find_tokens(
    body: &Value,
    text: &str,
    field: &str,
    mut phrases: impl Iterator<Item = &'static str>,
) -> Option<u64> {
    let error = body.get("error").unwrap_or(body);
    let stated = error.get(field).or_else(|| body.get(field)).and_then(number);
    let found = stated.or_else(|| phrases.find_map(|phrase| number_after(text, phrase)));
    found.filter(|tokens| PLAUSIBLE_TOKENS.contains(tokens))
}

/// True for a limit of tokens per minute, which is not the context window.
pub(crate) fn is_minute_limit(text: &str) -> bool {
    has_any(text, &["tokens per min", "(tpm)", "tokens/min"])
}

/// The number that follows a phrase.
fn number_after(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let rest = text[at + phrase.len()..].trim_start_matches([' ', '`', '=', '(']);
        let mut digits = String::new();
        let mut rest = rest.chars().peekable();
        while let Some(next) = rest.next() {
            match next {
                '0'..='9' => digits.push(next),
                ',' | '_' if rest.peek().is_some_and(char::is_ascii_digit) => {}
                _ => break,
            }
        }
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// opencode#12671, litellm#25479: the plan was paid for.
    #[test]
    fn the_key_of_a_coding_plan_at_the_usual_address_is_told_as_such() {
        let messages = [
            "Insufficient balance or no resource package. Please recharge.",
            "余额不足或无可用资源包,请充值。",
        ];
        for message in messages {
            let text = super::super::with_advice(message, ErrorKind::Quota, None, None);
            assert!(text.contains("must end in `/api/coding/paas/v4`"), "{text}");
        }
    }

    #[test]
    fn a_broken_image_is_distinguished_from_missing_image_support() {
        let table = [
            (
                true,
                "Invalid 'messages[1].content[1].image_url.url'. Expected a base64-encoded data URL",
            ),
            (true, "You uploaded an unsupported image. Please make sure your image is valid."),
            (true, "Could not process image"),
            (true, "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"),
            (true, "Provided image is not valid."),
            (true, "Invalid PNG image."),
            (true, "Unsupported image type: image/gif. Supported are PNG and JPEG."),
            (true, "image: unknown format"),
            (true, "'url' field must be a base64 encoded image."),
            (true, "The image is too small"),
            (true, "Downloaded response does not contain a valid JPG, PNG, or WebP image."),
            (true, "image.source.base64.media_type: Input should be 'image/jpeg' or 'image/png'"),
            (true, "cannot identify image file <_io.BytesIO object>"),
            (true, "At most 1 image(s) may be provided in one request."),
            (false, "At most 0 image(s) may be provided in one request."),
            (false, "unknown variant `image_url`, expected `text`"),
            (false, "image input is not supported - hint: you may need to provide the mmproj"),
            (false, "No endpoints found that support image input"),
            (true, "media exceeds size limit: max 10485760 bytes (2013)"),
            (true, "[1210][图片输入格式/解析错误][20260916231629b20b]"),
            (false, "messages.content.type 参数非法，取值范围 ['text']"),
            (false, "Input should be a valid string"),
            (true, "Could not process PDF"),
            (true, "A maximum of 100 PDF pages may be provided."),
            (true, "The PDF specified is password protected."),
            (
                true,
                "Invalid file data: 'messages[1].content[0].file.file_data'. Expected a base64-encoded data URL",
            ),
            (false, "the prompt is too large"),
            (false, "tools.0.function.description: Input should be a valid string"),
        ];
        for (expected, message) in table {
            let error = LlmError::Status {
                host: "h".into(),
                status: 400,
                proxy: None,
                message: message.to_owned(),
                retry_after: None,
                kind: ErrorKind::BadRequest,
                key_advice: None,
                failed_generation: None,
            };
            assert_eq!(error.is_about_one_image(), expected, "{message}");
            let is_about_images =
                message != "the prompt is too large" && !message.contains("tools.0");
            assert_eq!(error.is_about_images(), is_about_images, "{message}");
        }
    }

    #[test]
    fn the_most_images_of_a_request_are_found_in_the_words_of_many_servers() {
        for (message, expected) in [
            ("At most 1 image(s) may be provided in one request.", Some(1)),
            ("Too much media: 0 document pages + 103 images > 100", Some(100)),
            ("too many images and documents: 120 + 0 > 100", Some(100)),
            (
                "request contains 52 images, exceeding the maximum of 50 allowed per request",
                Some(50),
            ),
            ("too many images; at most 16 are allowed", Some(16)),
            ("Too many images in request. Max is 10.", Some(10)),
            (
                "too many images: 11 images were provided, but the model supports a maximum of 10",
                Some(10),
            ),
            ("Image count 5 exceeds limit 4 per request.", Some(4)),
            (
                "image dimensions exceed max allowed size for many-image requests: 2000 pixels",
                Some(20),
            ),
            ("image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", None),
            ("At least one of the image dimensions exceed max allowed size: 8000 pixels", None),
        ] {
            let error = LlmError::in_stream("h".into(), message.into(), ErrorKind::BadRequest);
            assert_eq!(error.most_images(), expected, "{message}");
            assert!(error.is_about_one_image(), "{message}");
        }
    }

    #[test]
    fn a_server_that_takes_no_files_is_told_from_one_that_could_not_use_one() {
        for (expected, message) in [
            (true, "Unknown part type: file"),
            (
                true,
                "Unsupported chat content part type: 'file'. Supported types: 'text', 'image_url'",
            ),
            (true, "litellm.BadRequestError: Invalid content part type: file"),
            (true, "Invalid value: file. Supported values are: 'text','image_url' and 'video'."),
            (true, "Invalid value: 'input_file'. Supported values are: 'input_text'"),
            (true, "messages[1]: unknown variant `file`, expected `text` or `image_url`"),
            (true, "Input tag 'file' found using 'type' does not match any of the expected tags"),
            (true, "unsupported content[].type"),
            (
                true,
                "'content' objects must have a 'type' field that is either 'text' or 'image_url'.",
            ),
            (true, "This model does not support file content types."),
            (true, "No endpoints found that support file input"),
            (true, "Unsupported MIME type: application/pdf"),
            (false, "Could not process PDF"),
            (false, "The PDF file is too large"),
            (false, "Could not read the configuration file"),
        ] {
            let error = LlmError::in_stream("h".into(), message.into(), ErrorKind::BadRequest);
            assert_eq!(error.is_about_files(), expected, "{message}");
            assert!(!expected || !error.is_about_one_image(), "{message}");
        }
    }

    #[test]
    fn only_the_key_of_a_gateway_is_said_to_be_its_own() {
        let openai = r#"{"error":{"message":"Incorrect API key provided: sk-1***9. You can find your API key at https://platform.openai.com/account/api-keys.","code":"invalid_api_key"}}"#;
        let litellm = r#"{"error":{"message":"litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: sk-1***9.","code":"401"}}"#;
        let openrouter = r#"{"error":{"message":"Provider returned error","code":401,"metadata":{"provider_name":"OpenAI"}}}"#;
        let own = r#"{"error":{"message":"Authentication Error, Invalid proxy server token passed","code":"401"}}"#;
        let echoed = r#"{"error":{"message":"litellm.AuthenticationError: [key] is wrong"}}"#;
        for (host, body, expected) in [
            ("api.openai.com", openai, None),
            ("gateway.example:4000", openai, Some("(platform.openai.com), or yours if")),
            ("gateway.example", litellm, Some("gateway.example has for its provider")),
            ("openrouter.ai", openrouter, Some("openrouter.ai has for its provider")),
            ("gateway.example", own, None),
            ("gateway.example", echoed, None),
            ("gateway.example", "no", None),
        ] {
            let advice = upstream_advice(host, body);
            assert_eq!(advice.is_some(), expected.is_some(), "{host}: {body}");
            assert!(advice.unwrap_or_default().contains(expected.unwrap_or_default()), "{body}");
        }
    }
}
