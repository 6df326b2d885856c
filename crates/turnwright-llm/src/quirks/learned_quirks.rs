//! Quirks that were learned from a server, layered over the built-in table and below the user's
//! overrides. They are kept for the process and saved for the next one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{QuirkPatch, Quirks, patches_for_refusal};
use crate::{ErrorKind, LlmError, Modalities, Price};

/// The facts learned about a model. They are stored on disk as its profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelProfile {
    pub quirks: QuirkPatch,
    /// The size of the context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The price that the server lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// Saves profiles. Must not block: it is called between two requests.
pub trait ProfileStore: Send + Sync + 'static {
    /// Saves everything that is known now.
    fn save(&self, profile: &ModelProfile);
}

/// The number of patches accepted from errors within streams, per process.
const MAX_STREAM_PATCHES: u32 = 3;

/// The quirks of one model at one server as they are currently known.
pub(crate) struct LearnedQuirks {
    table: QuirkPatch,
    overrides: QuirkPatch,
    // Held only to copy a few bytes.
    profile: Mutex<ModelProfile>,
    profile_store: Option<Arc<dyn ProfileStore>>,
    /// The number of patches that may still be accepted from errors within streams. These are not
    /// verified by a successful request, so they are limited.
    stream_patches_left: AtomicU32,
}

impl fmt::Debug for LearnedQuirks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LearnedQuirks")
            .field("quirks", &self.quirks())
            .finish_non_exhaustive()
    }
}

impl LearnedQuirks {
    pub(crate) fn new(
        table: QuirkPatch,
        profile: ModelProfile,
        overrides: QuirkPatch,
        profile_store: Option<Arc<dyn ProfileStore>>,
    ) -> LearnedQuirks {
        let stream_patches_left = AtomicU32::new(MAX_STREAM_PATCHES);
        LearnedQuirks {
            table,
            overrides,
            profile: Mutex::new(profile),
            profile_store,
            stream_patches_left,
        }
    }

    /// The current quirks.
    pub(crate) fn quirks(&self) -> Quirks {
        self.quirks_with(QuirkPatch::NONE)
    }

    /// The quirks with one more patch applied, below the overrides.
    pub(crate) fn quirks_with(&self, patch: QuirkPatch) -> Quirks {
        let profile = self.profile.lock();
        Quirks::default().with(self.table).with(profile.quirks).with(patch).with(self.overrides)
    }

    /// True if nothing is known about images: they are accepted only because most models take them.
    fn are_images_assumed(&self) -> bool {
        let learned = self.profile.lock().quirks.images;
        self.table.images.or(learned).or(self.overrides.images).is_none()
    }

    pub(crate) fn profile(&self) -> ModelProfile {
        self.profile.lock().clone()
    }

    /// Records quirks that were found out by a probe.
    pub(crate) fn record_quirks(&self, patch: QuirkPatch) {
        self.change(|profile| profile.quirks = profile.quirks.merge(patch));
    }

    /// The context window that the server has reported.
    pub(crate) fn window(&self) -> Option<u64> {
        self.profile.lock().window
    }

    /// The quirks that could avoid the refusal of a request that was rendered with `refused` and
    /// contained `media`. They are not recorded: a retry has to show whether they help.
    pub(crate) fn candidate_patches(
        &self,
        error: &LlmError,
        refused: &Quirks,
        media: Modalities,
    ) -> Vec<QuirkPatch> {
        let Some(message) = error.message() else { return Vec::new() };
        // Errors within a stream may have no status.
        let status = error.status().unwrap_or(400);
        // These messages may name parameters but are about something else: the size of the request,
        // the account, or the model's own output.
        let is_unrelated = match error.kind() {
            ErrorKind::ContextOverflow { .. }
            | ErrorKind::Quota
            | ErrorKind::Refused
            | ErrorKind::Auth
            | ErrorKind::UrlNotFound => true,
            ErrorKind::ModelNotFound => !message.contains("image input"),
            _ => error.is_reply_specific() || error.is_effort_rejection() || error.lacks_thought(),
        };
        if is_unrelated || error.is_about_one_image() {
            return Vec::new();
        }
        let mut patches = patches_for_refusal(status, message, refused, media);
        if patches.is_empty()
            && media.images
            && matches!(status, 400 | 415 | 422)
            && error.kind() == ErrorKind::BadRequest
            && self.are_images_assumed()
        {
            // A refusal in unknown words. Otherwise the image would fail every later request too.
            patches.push(QuirkPatch { images: Some(false), ..QuirkPatch::NONE });
        }
        // Patches that the user's overrides would undo are useless.
        patches.retain(|patch| refused.with(*patch).with(self.overrides) != *refused);
        patches
    }

    /// Uses up one of the patches that may come from errors within streams; false if none is left.
    pub(crate) fn may_learn_from_stream(&self) -> bool {
        self.stream_patches_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    /// Records a patch if it changes anything.
    pub(crate) fn record_if_new(&self, patch: QuirkPatch) {
        if patch != QuirkPatch::NONE && self.quirks_with(patch) != self.quirks() {
            tracing::info!(?patch, "learned a quirk from the server");
            self.change(|profile| profile.quirks = profile.quirks.merge(patch));
        }
    }

    /// Records the size of the context window in tokens.
    pub(crate) fn record_window(&self, tokens: u64) {
        if self.window() != Some(tokens) {
            self.change(|profile| profile.window = Some(tokens));
        }
    }

    /// The price that the server has listed.
    pub(crate) fn price(&self) -> Option<Price> {
        self.profile.lock().price
    }

    /// Records the price that the server lists.
    pub(crate) fn record_price(&self, price: Price) {
        if self.price() != Some(price) {
            self.change(|profile| profile.price = Some(price));
        }
    }

    /// Stores the known facts, even if there are none.
    pub(crate) fn save(&self) {
        self.change(|_| ());
    }

    fn change(&self, change: impl FnOnce(&mut ModelProfile)) {
        let mut profile = self.profile.lock();
        change(&mut profile);
        let now = profile.clone();
        drop(profile);
        if let Some(profile_store) = &self.profile_store {
            profile_store.save(&now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_named_in_an_unrelated_error_teaches_nothing() {
        let learned_quirks =
            LearnedQuirks::new(QuirkPatch::NONE, ModelProfile::default(), QuirkPatch::NONE, None);
        let refusal = |kind| LlmError::Status {
            host: "h".into(),
            status: 400,
            proxy: None,
            message: "input length and `max_tokens` exceed context limit".to_owned(),
            retry_after: None,
            kind,
            key_advice: None,
            failed_generation: None,
        };
        let quirks = Quirks::default();
        let none = Modalities::default();
        let candidates = |kind| learned_quirks.candidate_patches(&refusal(kind), &quirks, none);
        assert!(candidates(ErrorKind::ContextOverflow { limit: None, used: None }).is_empty());
        assert!(!candidates(ErrorKind::BadRequest).is_empty());
        let overrides = QuirkPatch { limit: Some(quirks.limit), ..QuirkPatch::NONE };
        let learned_quirks =
            LearnedQuirks::new(QuirkPatch::NONE, ModelProfile::default(), overrides, None);
        let candidates =
            learned_quirks.candidate_patches(&refusal(ErrorKind::BadRequest), &quirks, none);
        assert!(candidates.is_empty(), "what the user wishes is not unlearned");
    }

    fn refused(kind: ErrorKind, message: &str) -> LlmError {
        LlmError::Status {
            host: "h".into(),
            status: 400,
            proxy: None,
            message: message.to_owned(),
            retry_after: None,
            kind,
            key_advice: None,
            failed_generation: None,
        }
    }

    /// C.2 #17: an error about the model's output is not about the request.
    #[test]
    fn a_failed_generation_teaches_nothing() {
        let table = QuirkPatch::lookup("api.groq.com", "llama-3.3-70b-versatile");
        let learned_quirks =
            LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
        let message = "tool call validation failed: parameters for tool write_file did not match \
                       schema: errors: [`/content`: expected string, but got object]";
        let patches = learned_quirks.candidate_patches(
            &refused(ErrorKind::Unavailable, message),
            &learned_quirks.quirks(),
            Modalities::default(),
        );
        assert_eq!(patches, []);
    }

    #[test]
    fn a_refusal_in_unknown_words_is_blamed_on_an_image_only_if_images_are_assumed() {
        let images = Modalities { images: true, audio: false };
        let wish = QuirkPatch { images: Some(true), ..QuirkPatch::NONE };
        for (model, overrides, media, is_blamed) in [
            ("my-own", QuirkPatch::NONE, images, true),
            ("my-own", QuirkPatch::NONE, Modalities::default(), false),
            ("my-own", wish, images, false),
            ("gpt-4o", QuirkPatch::NONE, images, false),
        ] {
            let table = QuirkPatch::lookup("localhost", model);
            let learned = LearnedQuirks::new(table, ModelProfile::default(), overrides, None);
            let error = refused(ErrorKind::BadRequest, "the template could not be applied");
            let patches = learned.candidate_patches(&error, &learned.quirks(), media);
            let no_images = QuirkPatch { images: Some(false), ..QuirkPatch::NONE };
            let expected = if is_blamed { vec![no_images] } else { Vec::new() };
            assert_eq!(patches, expected, "{model} {overrides:?} {media:?}");
        }
    }

    /// The default model supports low, medium and high.
    #[test]
    fn a_rejected_effort_does_not_disable_all_efforts() {
        let table = QuirkPatch::lookup("api.openai.com", "gpt-5-mini");
        let learned_quirks =
            LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
        let message = "Unsupported value: 'reasoning_effort' does not support 'none' with this \
                       model. Supported values are: 'minimal', 'low', 'medium', and 'high'.";
        for patch in learned_quirks.candidate_patches(
            &refused(ErrorKind::BadRequest, message),
            &learned_quirks.quirks(),
            Modalities::default(),
        ) {
            learned_quirks.record_if_new(patch);
        }
        assert!(learned_quirks.quirks().supports_effort());
    }
}
