//! Finds out which images of a conversation its server refuses, and leaves these out. Otherwise one that it
//! cannot use would fail every request from now on.

use std::cmp::Reverse;
use std::sync::Arc;

use super::sample::ReceivedAnswer;
use crate::turn::Turn;
use turnwright_llm::{LlmError, Request};
use turnwright_store::Entry;
use turnwright_types::message::{Media, Message, PromptPart};
use turnwright_types::sorting::sort_by_key;
use turnwright_types::update::Update;

/// How many images are left out one at a time before all new ones are.
const MAX_TRIALS: usize = 4;
/// The formats that most servers accept.
const USUAL_FORMATS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The sets of images to leave out of a request, one after the other, until the server accepts it.
#[derive(Debug)]
pub(super) struct ImageTrial {
    /// The last is the next. An image is its place among the images of the conversation.
    sets: Vec<Vec<usize>>,
}

impl ImageTrial {
    /// Images that were part of an answered request are suspected last.
    fn new(messages: &[Arc<Message>], error: &LlmError) -> ImageTrial {
        let answered = messages.iter().rposition(|it| matches!(it.as_ref(), Message::Assistant(_)));
        let (old, new) = messages.split_at(answered.unwrap_or(0));
        let old = old.iter().map(|it| images(it).count()).sum::<usize>();
        let mut suspects: Vec<_> = (old..).zip(new.iter().flat_map(|it| images(it))).collect();
        let count = old + suspects.len();
        if let Some(most) = error.most_images() {
            return ImageTrial { sets: vec![(0..count.saturating_sub(most)).collect()] };
        }
        let new: Vec<_> = (old..count).collect();
        // Unusual formats first, then the largest or else the newest.
        let is_about_size = error.is_about_image_size();
        sort_by_key(&mut suspects, |(place, image)| {
            let weight = if is_about_size { image.data.len() } else { *place };
            (USUAL_FORMATS.contains(&image.mime.as_str()), Reverse(weight))
        });
        let one_each = suspects.iter().take(MAX_TRIALS).map(|(place, _)| vec![*place]);
        let mut sets: Vec<_> = one_each.chain([new, (0..count).collect()]).collect();
        sets.retain(|set| !set.is_empty());
        sets.dedup();
        sets.reverse();
        ImageTrial { sets }
    }
}

impl Turn {
    /// The images to leave out of the next attempt if the server has refused one of this request.
    pub(super) fn next_left_out(
        received: &ReceivedAnswer,
        request: &Request,
        trial: &mut Option<ImageTrial>,
    ) -> Option<Vec<usize>> {
        let error = received.refused_image()?;
        trial.get_or_insert_with(|| ImageTrial::new(&request.messages, error)).sets.pop()
    }

    /// Leaves these images out of the conversation, and tells the user why.
    pub(super) fn leave_out(&mut self, images: Vec<usize>, error: &LlmError) {
        if leave_out_images(&mut self.history.messages, Some(&images)) {
            let what = if images.len() == 1 { "it was" } else { "some images were" };
            self.services.client().update(Update::Notice(left_out_notice(error, what)));
            self.services.log().add_entry(Entry::SomeImagesLeftOut { images });
        }
    }

    /// Leaves out all images if the server accepts none, and returns the text for the user.
    pub(super) fn drop_images(&mut self, error: &LlmError) -> Option<String> {
        if !error.is_about_images() || !leave_out_images(&mut self.history.messages, None) {
            return None;
        }
        self.services.log().add_entry(Entry::ImagesLeftOut);
        Some(left_out_notice(error, "all images so far were"))
    }
}

fn left_out_notice(error: &LlmError, what: &str) -> String {
    let (host, message) = (error.host().unwrap_or_default(), error.message());
    let why = message.unwrap_or("no explanation");
    format!("{host} could not use an image, so {what} left out. ({why})")
}

fn images(message: &Message) -> impl Iterator<Item = &Media> {
    let (parts, results): (&[PromptPart], &[Media]) = match message {
        Message::User(user) => (&user.parts, &[]),
        Message::Tool(tool) => (&[], &tool.images),
        Message::Assistant(_) => (&[], &[]),
    };
    let attached = parts.iter().filter_map(|part| match part {
        PromptPart::Image(media) => Some(media),
        _ => None,
    });
    attached.chain(results)
}

/// Replaces images by a note, or only those at these places among the images of the conversation. Returns
/// whether there was one.
pub(crate) fn leave_out_images(messages: &mut [Arc<Message>], only: Option<&[usize]>) -> bool {
    let mut place = 0;
    let mut is_changed = false;
    for message in messages {
        let mut changed = Message::clone(message);
        is_changed |= replace_images(&mut changed, &mut place, only);
        if is_changed {
            // All later messages are replaced too: a message caches what was rendered up to it.
            *message = Arc::new(changed);
        }
    }
    is_changed
}

/// Returns whether an image of the message, whose first has this place, was replaced.
fn replace_images(message: &mut Message, place: &mut usize, only: Option<&[usize]>) -> bool {
    const NOTE: &str = "[image left out: the server could not use it]";
    let mut is_left_out = || {
        *place += 1;
        only.is_none_or(|places| places.contains(&(*place - 1)))
    };
    match message {
        Message::User(user) => {
            let mut is_changed = false;
            for part in user.parts.iter_mut().filter(|it| matches!(it, PromptPart::Image(_))) {
                if is_left_out() {
                    *part = PromptPart::Text(NOTE.to_owned());
                    is_changed = true;
                }
            }
            is_changed
        }
        Message::Tool(tool) => {
            let count = tool.images.len();
            tool.images.retain(|_| !is_left_out());
            let is_changed = tool.images.len() < count;
            if is_changed {
                tool.text.push_str(NOTE);
            }
            is_changed
        }
        Message::Assistant(_) => false,
    }
}
