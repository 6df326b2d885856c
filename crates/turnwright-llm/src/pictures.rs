//! Whether a refusal is about pictures, and if so about one of them or about all: what a model can
//! do is not judged by a file that is broken or too large. Pure.

use super::LlmError;

/// What servers say about a picture that they do not take. In lower case, and only where the
/// message speaks of an image.
const ABOUT_ONE: &[&str] = &[
    "not valid",
    "valid image",
    "invalid image",
    "invalid base64",
    "base64-encoded",
    "could not process",
    "unable to process",
    "cannot identify",
    "uploaded an unsupported image",
    "decode",
    "corrupt",
    "exceed",
    "too large",
    "dimension",
    "length and width",
    "image format",
    "media type",
    "mime type",
    "failed to load",
    "image(s) may be provided",
];

/// What servers say that take no picture at all.
const ABOUT_ALL: &[&str] = &[
    "at most 0 image",
    "image_url",
    "image input",
    "not support image",
    "not a multimodal",
    "images are not supported",
];

/// The same, and it settles the matter.
const SURELY_ABOUT_ALL: &[&str] = &["at most 0 image", "not support", "not a multimodal"];

impl LlmError {
    /// Whether the server could do nothing with a picture, or with any.
    pub fn blames_pictures(&self) -> bool {
        self.blames_a_picture() || self.blames_images(ABOUT_ALL)
    }

    /// Whether the server could do nothing with a picture, though it takes some.
    pub(super) fn blames_a_picture(&self) -> bool {
        self.blames_images(ABOUT_ONE) && !self.blames_images(SURELY_ABOUT_ALL)
    }

    fn blames_images(&self, phrases: &[&str]) -> bool {
        let refusals = [400, 404, 413, 415, 422, 500];
        let message = self.message().unwrap_or_default().to_ascii_lowercase();
        self.status().is_none_or(|it| refusals.contains(&it))
            && message.contains("image")
            && phrases.iter().any(|it| message.contains(it))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn a_broken_picture_is_told_from_a_model_that_does_not_see() {
        let table = [
            (
                true,
                "Invalid 'messages[1].content[1].image_url.url'. Expected a base64-encoded data URL",
            ),
            (true, "You uploaded an unsupported image. Please make sure your image is valid."),
            (true, "Could not process image"),
            (true, "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"),
            (true, "Provided image is not valid."),
            (true, "cannot identify image file <_io.BytesIO object>"),
            (true, "At most 1 image(s) may be provided in one request."),
            (false, "At most 0 image(s) may be provided in one request."),
            (false, "unknown variant `image_url`, expected `text`"),
            (false, "image input is not supported - hint: you may need to provide the mmproj"),
            (false, "No endpoints found that support image input"),
            (false, "the prompt is too large"),
        ];
        for (expected, message) in table {
            let error = LlmError::Status {
                host: "h".to_owned(),
                status: 400,
                message: message.to_owned(),
                retry_after: None,
                kind: Kind::BadRequest,
                leaked: None,
            };
            assert_eq!(error.blames_a_picture(), expected, "{message}");
            assert_eq!(error.blames_pictures(), message.contains("mage"), "{message}");
        }
    }
}
