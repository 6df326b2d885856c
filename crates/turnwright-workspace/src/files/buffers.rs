//! Who serves a file: the editor, whose unsaved changes count, or the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::save::Before;
use super::text::{LineEnds, with_crlf, with_lf};
use super::{BUFFER_LIMIT, FileError, Files, Source, Text, Written, disk, save};
use turnwright_types::client::{BufferError, Buffers};
use turnwright_types::effect::{Place, Target};

/// How long an editor is asked in one call: until it has once failed to answer.
#[derive(Debug, Default)]
pub struct Patience(AtomicBool);

impl Patience {
    fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A text, and how the editor has it.
pub(super) struct Found {
    pub(super) text: Text,
    /// The editor shows line feeds only, of a file that has carriage returns, too.
    unified: bool,
}

impl Files {
    pub(super) async fn find(
        &self,
        target: &Target,
        patience: &Patience,
    ) -> Result<Found, FileError> {
        self.check(target).await?;
        let on_disk = disk::read(&target.path).await;
        let has_buffer = match &on_disk {
            Ok(text) => text.text.len() <= BUFFER_LIMIT && !text.is_special(),
            // What exists and is no text is no buffer either, and could block the editor.
            Err(error) => *error == FileError::NotFound,
        };
        if let Some(editor) = self.reader(target).filter(|_| has_buffer && !patience.is_lost()) {
            match editor.read(&self.roots.shown(target)).await {
                // Some editors answer with nothing for a file that does not exist.
                Ok(text) if text.is_empty() && on_disk.is_err() => {}
                Ok(text) => {
                    let saved = on_disk.as_ref().ok().map(|it| it.text.as_str());
                    self.unsaved.compare(&target.path, saved, &text);
                    return Ok(merge(on_disk.ok(), text));
                }
                Err(error) => {
                    tracing::debug!(%error, "read from the disk instead");
                    patience.0.fetch_or(error == BufferError::Silent, Ordering::Relaxed);
                }
            }
        }
        on_disk.map(|text| Found { text, unified: false })
    }

    fn reader(&self, target: &Target) -> Option<&Arc<dyn Buffers>> {
        self.buffers.as_ref().filter(|it| it.can_read() && target.place == Place::Inside)
    }

    pub(super) async fn put(
        &self,
        target: &Target,
        before: Option<&Text>,
        after: &str,
        cancel: &CancellationToken,
    ) -> Result<Written, FileError> {
        let patience = Patience::default();
        let now = match cancel.run_until_cancelled(self.find(target, &patience)).await {
            Some(Ok(found)) => Some(found),
            Some(Err(FileError::NotFound)) => None,
            Some(Err(error)) => return Err(error),
            None => return Err(FileError::Cancelled),
        };
        if now.as_ref().map(|it| &it.text.text) != before.map(|it| &it.text) {
            return Err(FileError::Stale);
        }
        let longest = before.map_or(0, |it| it.text.len()).max(after.len());
        let editor = self
            .buffers
            .as_ref()
            .filter(|_| target.place == Place::Inside && longest <= BUFFER_LIMIT);
        if let Some(editor) = editor {
            match now.as_ref().map(|it| &it.text) {
                Some(text) if text.source == Source::Disk && text.is_special() => {
                    self.expect_saved(target, text, cancel).await?;
                }
                _ if !editor.can_write() => {}
                _ => {
                    let unified = now.as_ref().is_some_and(|it| it.unified);
                    if self.hand_over(editor, target, after, unified, cancel).await? {
                        return Ok(self.read_back(target, before, after, cancel).await);
                    }
                }
            }
        }
        let form = now.as_ref().map_or_else(Default::default, |it| it.text.form);
        let text = Text { text: after.to_owned(), form, source: Source::Disk };
        let encode = move || {
            let there = now.as_ref().map_or(Before::Nothing, on_disk);
            Ok((there, text.encode()?, text))
        };
        let (there, bytes, text) = disk::blocking(encode).await?;
        save::write(&target.path, there, bytes).await?;
        Ok(Written { text, is_confirmed: true })
    }

    /// Gives the editor a text to write; `false` if it does not know the file.
    async fn hand_over(
        &self,
        editor: &Arc<dyn Buffers>,
        target: &Target,
        after: &str,
        unified: bool,
        cancel: &CancellationToken,
    ) -> Result<bool, FileError> {
        // In the form in which it showed the text: most know the line ends of their files.
        let shown = if unified { &with_lf(after) } else { after };
        match ask_to_write(editor, self, target, shown, cancel).await? {
            Answer::Unknown => return Ok(false),
            Answer::Done if !unified => return Ok(true),
            Answer::Done => {}
        }
        // Some write what they are given. They get the line ends, too.
        let lost = |it: &Text| it.text.contains('\n') && it.line_ends() == LineEnds::Lf;
        if disk::read(&target.path).await.as_ref().is_ok_and(lost) {
            ask_to_write(editor, self, target, after, cancel).await?;
        }
        Ok(true)
    }

    /// What is there after the editor has written.
    async fn read_back(
        &self,
        target: &Target,
        before: Option<&Text>,
        after: &str,
        cancel: &CancellationToken,
    ) -> Written {
        let patience = Patience::default();
        let found = cancel.run_until_cancelled(self.find(target, &patience)).await;
        match found {
            Some(Ok(Found { text, .. }))
                if text.text == after || before.is_none_or(|it| it.text != text.text) =>
            {
                Written { text, is_confirmed: true }
            }
            // It may not be saved yet, by an editor that does not show what it has.
            _ => Written { text: Text::new(after, Source::Editor), is_confirmed: false },
        }
    }

    /// The editor must have nothing that the disk has not: it is the disk that is written.
    async fn expect_saved(
        &self,
        target: &Target,
        text: &Text,
        cancel: &CancellationToken,
    ) -> Result<(), FileError> {
        let Some(editor) = self.reader(target) else { return Ok(()) };
        let path = self.roots.shown(target);
        let Some(shown) = cancel.run_until_cancelled(editor.read(&path)).await else {
            return Err(FileError::Cancelled);
        };
        let Ok(shown) = shown else { return Ok(()) };
        let plain = |it: &str| with_lf(it.trim_start_matches('\u{feff}'));
        // Not every editor knows the encoding: it may show the bytes as if they were UTF-8.
        let bytes = text.form.encode(&text.text).unwrap_or_default();
        let same = [text.text.as_str(), &String::from_utf8_lossy(&bytes)];
        let is_saved = same.iter().any(|it| plain(it) == plain(&shown));
        if is_saved { Ok(()) } else { Err(FileError::Unsaved) }
    }
}

/// What the disk has if this was read from it.
fn on_disk(found: &Found) -> Before {
    let text = &found.text;
    match text.form.encode(&text.text) {
        Ok(bytes) if text.source == Source::Disk => Before::Bytes(bytes),
        _ => Before::Anything,
    }
}

enum Answer {
    Done,
    Unknown,
}

async fn ask_to_write(
    editor: &Arc<dyn Buffers>,
    files: &Files,
    target: &Target,
    text: &str,
    cancel: &CancellationToken,
) -> Result<Answer, FileError> {
    let path = files.roots.shown(target);
    match cancel.run_until_cancelled(editor.write(&path, text)).await {
        Some(Ok(())) => Ok(Answer::Done),
        Some(Err(BufferError::NotFound)) => Ok(Answer::Unknown),
        // Not written behind its back: it may have refused for a reason, or may still be writing.
        Some(Err(error)) => Err(FileError::Editor(error.to_string())),
        None => Err(FileError::Editor(
            "cancelled by the user before it answered. Read the file to see whether it was written"
                .to_owned(),
        )),
    }
}

/// The editor's text, with the line ends of the disk where it shows none of its own.
fn merge(on_disk: Option<Text>, shown: String) -> Found {
    let has_both = on_disk.is_some_and(|it| it.line_ends() == LineEnds::Crlf);
    let unified = has_both && shown.contains('\n') && !shown.contains('\r');
    let text = if unified { with_crlf(&shown) } else { shown };
    Found { text: Text::new(text, Source::Editor), unified }
}
