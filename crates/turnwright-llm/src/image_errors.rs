//! Decides whether a refusal is about images, and whether it is about one image or about images in
//! general. A broken or oversized file says nothing about the model's abilities. Does no I/O.

use super::LlmError;

/// Phrases about a single rejected image, in lower case. They only count in messages that mention
/// an image.
const ONE_IMAGE_PHRASES: &[&str] = &[
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

/// Phrases of servers that accept no images at all.
const NO_IMAGES_PHRASES: &[&str] = &[
    "at most 0 image",
    "image_url",
    "image input",
    "not support image",
    "not a multimodal",
    "images are not supported",
];

/// Phrases that leave no doubt that the server accepts no images.
const CERTAINLY_NO_IMAGES_PHRASES: &[&str] =
    &["at most 0 image", "not support", "not a multimodal"];

impl LlmError {
    /// True if the server rejected an image, or images in general.
    pub fn is_about_images(&self) -> bool {
        self.is_about_one_image() || self.mentions_images_with(NO_IMAGES_PHRASES)
    }

    /// True if the server rejected one image but accepts images in general.
    pub fn is_about_one_image(&self) -> bool {
        self.mentions_images_with(ONE_IMAGE_PHRASES)
            && !self.mentions_images_with(CERTAINLY_NO_IMAGES_PHRASES)
    }

    /// The most images that the server accepts in one request, if it says so.
    pub fn most_images(&self) -> Option<usize> {
        let message = self.message()?.to_ascii_lowercase();
        let (count, rest) = message.split_once("at most ")?.1.split_once(' ')?;
        count.parse().ok().filter(|_| rest.starts_with("image"))
    }

    fn mentions_images_with(&self, phrases: &[&str]) -> bool {
        let refusals = [400, 404, 413, 415, 422, 500];
        let message = self.message().unwrap_or_default().to_ascii_lowercase();
        self.status().is_none_or(|status| refusals.contains(&status))
            && message.contains("image")
            && phrases.iter().any(|phrase| message.contains(phrase))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ErrorKind;
    use super::*;

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
            assert_eq!(error.is_about_images(), message.contains("mage"), "{message}");
        }
    }
}
