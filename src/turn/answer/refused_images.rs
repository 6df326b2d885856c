//! Finds out which images and PDF files of a conversation its server refuses, and leaves them out. Otherwise one
//! unusable image would make every later request fail. A PDF file counts as an image here.

use std::sync::Arc;

use crate::turn::Turn;
use turnwright_llm::{LlmError, Modalities};
use turnwright_store::Entry;
use turnwright_types::message::{Media, Message, PromptPart};

/// How many images are left out one at a time before all new images are left out.
const MAX_TRIALS: usize = 4;

/// The sets of images to leave out of a request until the server accepts it, the last first. An image is its
/// place among those of the conversation. The newest are suspected first, and last those that were part of a
/// request that was answered. If the error is about no single image, PDF files are suspected before images: few servers
/// accept them.
pub(super) fn suspected_images(
    messages: &[Arc<Message>],
    error: &LlmError,
    takes: Modalities,
) -> Vec<Vec<usize>> {
    let answered =
        messages.iter().rposition(|message| matches!(message.as_ref(), Message::Assistant(_)));
    let old: usize =
        messages[..answered.unwrap_or(0)].iter().map(|message| message.images().count()).sum();
    let images: Vec<_> = messages.iter().flat_map(|message| message.images()).collect();
    let all = images.len();
    let is_about_one = error.is_about_one_image();
    let mut sets: Vec<Vec<_>> = vec![(0..all).collect(), (old..all).collect()];
    if is_about_one && let Some(most) = error.most_images().filter(|most| *most < all) {
        sets.push((0..all - most).collect());
    } else if is_about_one {
        sets.extend((all.saturating_sub(MAX_TRIALS).max(old)..all).map(|place| vec![place]));
    } else {
        let suspects_images = takes.images && !error.is_about_images() && !error.is_about_files();
        // Media that the model does not take were not sent.
        for set in &mut sets {
            set.retain(|place| if images[*place].is_pdf() { takes.files } else { suspects_images });
        }
        let mut files = sets.clone();
        for set in &mut files {
            set.retain(|place| images[*place].is_pdf());
        }
        sets.retain(|set| !files.contains(set));
        sets.extend(files);
    }
    sets.retain(|set| !set.is_empty());
    sets.dedup();
    sets
}

impl Turn {
    /// Leaves these images out of the conversation, and tells the user why.
    pub(super) fn leave_out(&mut self, images: Vec<usize>, error: &LlmError) {
        if leave_out_images(&mut self.history.messages, Some(&images)) {
            let what = if images.len() == 1 { "it was" } else { "some were" };
            self.conversation.notify(left_out_notice(error, what));
            self.conversation.log().add_entry(Entry::SomeImagesLeftOut { images });
        }
    }

    /// Leaves out all images if the server accepts none, and returns the text for the user.
    pub(super) fn drop_images(&mut self, error: &LlmError) -> Option<String> {
        if !error.is_about_images() || !leave_out_images(&mut self.history.messages, None) {
            return None;
        }
        self.conversation.log().add_entry(Entry::ImagesLeftOut);
        Some(left_out_notice(error, "all images so far were"))
    }
}

fn left_out_notice(error: &LlmError, what: &str) -> String {
    let host = error.host().unwrap_or_default();
    let why = error.message().unwrap_or("no explanation");
    format!("{host} could not use an image or PDF file, so {what} left out. ({why})")
}

/// The text that takes the place of an image or a PDF file.
fn left_out_note(media: &Media) -> String {
    format!("[{} left out: the server could not use it]", media.kind())
}

/// Replaces images by a note, or only those at these places among the images of the conversation. Returns
/// true if there was one.
pub(crate) fn leave_out_images(messages: &mut [Arc<Message>], only: Option<&[usize]>) -> bool {
    let mut place = 0;
    let mut is_changed = false;
    for message in messages.iter_mut().skip_while(|message| !message.has_images()) {
        let mut changed = Message::clone(message);
        is_changed |= replace_images(&mut changed, &mut place, only);
        if is_changed {
            // All later messages are replaced too: a message caches what was rendered up to it.
            *message = Arc::new(changed);
        }
    }
    is_changed
}

/// Returns true if an image of the message, whose first has this place, was replaced.
fn replace_images(message: &mut Message, place: &mut usize, only: Option<&[usize]>) -> bool {
    let mut is_left_out = || {
        *place += 1;
        only.is_none_or(|places| places.contains(&(*place - 1)))
    };
    match message {
        Message::User(user) => {
            let mut is_changed = false;
            for part in &mut user.parts {
                if let PromptPart::Image(image) = part
                    && is_left_out()
                {
                    *part = PromptPart::Text(left_out_note(image));
                    is_changed = true;
                }
            }
            is_changed
        }
        Message::Tool(tool) => {
            let left_out: Vec<_> = tool.images.extract_if(.., |_| is_left_out()).collect();
            tool.text.extend(left_out.iter().map(left_out_note));
            !left_out.is_empty()
        }
        Message::Assistant(_) => false,
    }
}
