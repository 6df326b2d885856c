//! Decides whether a file is read and written through the editor, whose unsaved changes count, or
//! on the disk.
//!
//! Remembers which files had unsaved changes when they were last read through the editor, and which were changed behind
//! its back. Searches and commands see only the disk, so the model has to be told; and an editor may go on showing what
//! was there before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::save::{self, WritePrecondition};
use super::text::{LineEndings, with_crlf, with_lf};
use super::{EDITOR_TEXT_LIMIT, FileError, FileText, Files, TextSource, WriteOutcome, disk};
use crate::nofollow;
use turnwright_types::client::{BufferError, EditorBuffers};
use turnwright_types::effect::{PathScope, ResolvedPath};
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_types::hash::sha256_hex;
use turnwright_types::text::join_first;

/// A text that was read, and how the editor shows it.
pub(super) struct LoadedText {
    pub(super) text: FileText,
    /// The editor shows line feeds although the file has CRLF.
    is_lf_normalized: bool,
    /// The editor has unsaved changes, and a call has changed the file on the disk.
    is_conflicting: bool,
}

impl LoadedText {
    /// The text, if it may be changed.
    pub(super) fn for_change(self) -> Result<FileText, FileError> {
        if self.is_conflicting { Err(FileError::Conflict) } else { Ok(self.text) }
    }
}

impl Files {
    pub(super) async fn load(&self, target: &ResolvedPath) -> Result<LoadedText, FileError> {
        let on_disk = self.read_disk(target).await;
        self.prefer_editor(target, on_disk).await
    }

    /// Like [`Files::load`], but the editor is not asked for a file that is not on the disk, unless
    /// it has shown a text for it.
    pub(super) async fn load_existing(
        &self,
        target: &ResolvedPath,
    ) -> Result<LoadedText, FileError> {
        match self.read_disk(target).await {
            Err(FileError::NotFound) if !self.unsaved.contains(&target.path) => {
                Err(FileError::NotFound)
            }
            on_disk => self.prefer_editor(target, on_disk).await,
        }
    }

    /// The text of a file as the editor has it, or else as it is on the disk.
    pub(super) async fn prefer_editor(
        &self,
        target: &ResolvedPath,
        on_disk: Result<FileText, FileError>,
    ) -> Result<LoadedText, FileError> {
        let has_buffer = match &on_disk {
            Ok(text) => text.text.len() <= EDITOR_TEXT_LIMIT && !text.is_lossy_in_editor(),
            // A file that exists and is not text is not open in the editor either, and asking for
            // it could block the editor.
            Err(error) => *error == FileError::NotFound,
        };
        if let Some(editor) = self.readable_editor(target).filter(|_| has_buffer) {
            match editor.read(&self.roots.client_path(target)).await {
                Ok(text) if has_lost_characters(&text, on_disk.as_ref().ok()) => {
                    return Err(FileError::ReadRefused(BROKEN_CHARACTERS.to_owned()));
                }
                Ok(text) if text.is_empty() && self.unsaved.distrusts(on_disk.as_ref().ok()) => {}
                Ok(text) => {
                    let files = self.clone();
                    return disk::run_at(&target.path, move |path| {
                        Ok(files.compare_buffer(path, on_disk.ok(), text))
                    })
                    .await;
                }
                Err(error @ BufferError::Refused(_)) if on_disk.is_ok() => {
                    return Err(FileError::ReadRefused(error.to_string()));
                }
                Err(error) => tracing::debug!(%error, "the disk serves a file, and not the editor"),
            }
        }
        on_disk.map(|text| LoadedText { text, is_lf_normalized: false, is_conflicting: false })
    }

    /// Returns the editor's text, or the disk's if the editor has merely not loaded that yet.
    fn compare_buffer(&self, path: &Path, on_disk: Option<FileText>, shown: String) -> LoadedText {
        let mut loaded = as_on_disk(on_disk.as_ref(), shown);
        let saved = on_disk.as_ref().map(|saved| saved.text.as_str());
        match (self.unsaved.compare(path, saved, &loaded.text.text), on_disk) {
            (BufferState::Stale, Some(text)) => loaded.text = text,
            (state, _) => loaded.is_conflicting = state == BufferState::Conflict,
        }
        loaded
    }

    /// The editor, if it may be asked for this file.
    fn editor_of(&self, target: &ResolvedPath) -> Option<&Arc<dyn EditorBuffers>> {
        self.buffers.as_ref().filter(|_| target.scope == PathScope::Workspace)
    }

    pub(super) fn readable_editor(&self, target: &ResolvedPath) -> Option<&Arc<dyn EditorBuffers>> {
        self.editor_of(target).filter(|editor| editor.can_read())
    }

    pub(super) async fn write_if_unchanged(
        &self,
        target: &ResolvedPath,
        before: Option<&FileText>,
        after: &str,
        cancel: &CancellationToken,
    ) -> Result<WriteOutcome, FileError> {
        let loading = async {
            match before {
                Some(_) => self.load(target).await,
                None => self.load_existing(target).await,
            }
        };
        let now = match cancel.run_until_cancelled(loading).await {
            Some(Ok(found)) if found.is_conflicting => return Err(FileError::Conflict),
            Some(Ok(found)) => Some(found),
            Some(Err(FileError::NotFound)) => None,
            Some(Err(error)) => return Err(error),
            None => return Err(FileError::Cancelled),
        };
        if now.as_ref().map(|buffer| &buffer.text.text) != before.map(|before| &before.text) {
            return Err(FileError::Stale);
        }
        let longest = before.map_or(0, |before| before.text.len()).max(after.len());
        if let Some(editor) = self.editor_of(target).filter(|_| longest <= EDITOR_TEXT_LIMIT) {
            match now.as_ref().map(|buffer| &buffer.text) {
                Some(text) if text.source == TextSource::Disk && text.is_lossy_in_editor() => {
                    self.ensure_saved(target, text, cancel).await?;
                }
                // The user may have emptied the buffer, which stays as it is.
                Some(text) if text.source == TextSource::Disk && self.unsaved.is_blank() => {}
                _ if !editor.can_write() => {}
                _ => {
                    let is_lf_normalized =
                        now.as_ref().is_some_and(|buffer| buffer.is_lf_normalized);
                    if self.write_in_editor(editor, target, after, is_lf_normalized, cancel).await?
                    {
                        return Ok(self.read_back(target, before, after, cancel).await);
                    }
                }
            }
        }
        let encoding = now.as_ref().map_or_else(Default::default, |buffer| buffer.text.encoding);
        let text = FileText { text: after.to_owned(), encoding, source: TextSource::Disk };
        // Even if it cannot be read now: it may show the old text once its client has connected again.
        let has_buffer = self.editor_of(target).is_some();
        let unsaved = Arc::clone(&self.unsaved);
        let preparing = disk::run_at(&target.path, move |path| {
            if let Some(now) = now.as_ref().filter(|_| has_buffer) {
                unsaved.note_replaced(path, sha256_hex(now.text.text.as_bytes()));
            }
            let precondition = now.as_ref().map_or(WritePrecondition::Absent, expected_on_disk);
            Ok((precondition, text.encode()?, text))
        });
        let (precondition, bytes, text) = preparing.await?;
        save::write(&target.path, precondition, bytes).await?;
        Ok(WriteOutcome { text, is_confirmed: true })
    }

    /// Has the editor write a text; `false` if the editor does not know the file.
    async fn write_in_editor(
        &self,
        editor: &Arc<dyn EditorBuffers>,
        target: &ResolvedPath,
        after: &str,
        is_lf_normalized: bool,
        cancel: &CancellationToken,
    ) -> Result<bool, FileError> {
        // In the form that the editor showed: most editors restore the line endings of their files.
        let shown = if is_lf_normalized { &with_lf(after) } else { after };
        // Not every editor makes the folders of a new file.
        let preparing = disk::run_at(&target.path, |path| {
            save::separate_from_other_names(path)?;
            Ok(make_missing_folders(path))
        });
        let made = preparing.await?;
        let is_written = request_write(editor, self, target, shown, cancel).await;
        if !matches!(is_written, Ok(true)) {
            disk::run_blocking(move || Ok(made.iter().try_for_each(fs::remove_dir).ok())).await?;
        }
        if !is_written? {
            return Ok(false);
        }
        if let Ok(written) = disk::read(&target.path).await
            && let Some(repair) = form_that_was_missed(shown, after, &written)
        {
            request_write(editor, self, target, repair, cancel).await?;
        }
        Ok(true)
    }

    /// Reads the text back after the editor has written.
    async fn read_back(
        &self,
        target: &ResolvedPath,
        before: Option<&FileText>,
        after: &str,
        cancel: &CancellationToken,
    ) -> WriteOutcome {
        let found = cancel.run_until_cancelled(self.load(target)).await;
        let written = match found {
            Some(Ok(LoadedText { text, .. }))
                if text.text == after || before.is_none_or(|before| before.text != text.text) =>
            {
                WriteOutcome { text, is_confirmed: true }
            }
            // The editor may not have saved it yet and show the old text.
            _ => {
                WriteOutcome { text: FileText::new(after, TextSource::Editor), is_confirmed: false }
            }
        };
        if let Ok(saved) = disk::read(&target.path).await
            && before.is_none_or(|before| before.text != saved.text)
        {
            self.unsaved.note_converted(&target.path, &written.text, &saved);
        }
        written
    }

    /// Fails if the editor has unsaved changes: the disk is about to be written, and they would
    /// conflict.
    async fn ensure_saved(
        &self,
        target: &ResolvedPath,
        text: &FileText,
        cancel: &CancellationToken,
    ) -> Result<(), FileError> {
        let Some(editor) = self.readable_editor(target) else { return Ok(()) };
        let path = self.roots.client_path(target);
        let Some(shown) = cancel.run_until_cancelled(editor.read(&path)).await else {
            return Err(FileError::Cancelled);
        };
        let shown = match shown {
            Ok(shown) if !shown.is_empty() || !self.unsaved.distrusts(Some(text)) => shown,
            Err(error @ BufferError::Refused(_)) => {
                return Err(FileError::ReadRefused(error.to_string()));
            }
            _ => return Ok(()),
        };
        // Not every editor supports the encoding: it may show the bytes as if they were UTF-8.
        let bytes = text.encoding.encode(&text.text).unwrap_or_default();
        let same = [text.text.as_str(), &String::from_utf8_lossy(&bytes)];
        let is_saved = same.iter().any(|text| comparable(text) == comparable(&shown));
        if is_saved { Ok(()) } else { Err(FileError::Unsaved) }
    }
}

/// A text without a byte order mark, CRs and the last line end, which editors may show or not.
fn comparable(text: &str) -> String {
    let lines = with_lf(text.trim_start_matches('\u{feff}'));
    lines.strip_suffix('\n').unwrap_or(&lines).to_owned()
}

/// Requires the disk to be unchanged, if the text was read from it.
fn expected_on_disk(found: &LoadedText) -> WritePrecondition {
    let text = &found.text;
    match text.encoding.encode(&text.text) {
        Ok(bytes) if text.source == TextSource::Disk => WritePrecondition::Bytes(bytes),
        _ => WritePrecondition::Any,
    }
}

/// Makes the folders above a file, and returns those that were missing, the deepest first.
fn make_missing_folders(path: &Path) -> Vec<PathBuf> {
    let missing = disk::missing_parents(path);
    match missing.first().map(|deepest| nofollow::create_folder(deepest)) {
        Some(Ok(_)) => missing,
        _ => Vec::new(),
    }
}

/// Returns false if the editor does not know the file.
async fn request_write(
    editor: &Arc<dyn EditorBuffers>,
    files: &Files,
    target: &ResolvedPath,
    text: &str,
    cancel: &CancellationToken,
) -> Result<bool, FileError> {
    let path = files.roots.client_path(target);
    match cancel.run_until_cancelled(editor.write(&path, text)).await {
        Some(Ok(())) => Ok(true),
        Some(Err(BufferError::NotFound)) => Ok(false),
        // Do not fall back to the disk: the editor may have had a reason, or may still be writing.
        Some(Err(error)) => Err(FileError::Editor(error.to_string())),
        None => Err(FileError::Editor(
            "cancelled by the user before it answered. Read the file to see whether it was written"
                .to_owned(),
        )),
    }
}

/// The editor's text in the form of the file on the disk: with CRLF if the editor shows only line feeds, and with
/// the end of the last line if the editor leaves that out or adds it.
fn as_on_disk(on_disk: Option<&FileText>, shown: String) -> LoadedText {
    let is_crlf = on_disk.is_some_and(|text| text.line_endings() == LineEndings::Crlf);
    let is_lf_normalized = is_crlf && !shown.contains('\r');
    let mut text = if is_lf_normalized { with_crlf(&shown) } else { shown };
    if let Some(saved) = on_disk.map(|saved| saved.text.as_str()) {
        let end = if is_crlf { "\r\n" } else { "\n" };
        let is_open = !text.is_empty() && !text.ends_with('\n');
        if saved.strip_suffix(end) == Some(&text) || is_open && saved.ends_with(end) {
            text.push_str(end);
        } else if !saved.is_empty() && text.strip_suffix(end) == Some(saved) {
            text.truncate(saved.len());
        }
    }
    let text = FileText::new(text, TextSource::Editor);
    LoadedText { text, is_lf_normalized, is_conflicting: false }
}

/// Returns the text to send once more to an editor that has written `sent` in another form than `after`: some
/// write exactly what they are given, and some end the last line again.
fn form_that_was_missed<'a>(sent: &'a str, after: &'a str, written: &FileText) -> Option<&'a str> {
    let has_lost_cr =
        sent != after && written.text.contains('\n') && written.line_endings() == LineEndings::Lf;
    if has_lost_cr {
        return Some(after);
    }
    let end = if written.line_endings() == LineEndings::Crlf { "\r\n" } else { "\n" };
    let is_longer = written.text.strip_suffix(end) == Some(after);
    sent.strip_suffix("\r\n").or(sent.strip_suffix('\n')).filter(|_| is_longer)
}

const MAX_REMEMBERED: usize = 256;
/// The most files that were changed on the disk alone, and the most earlier contents of each.
const MAX_REPLACED: usize = 4_096;
const MAX_CONTENTS: usize = 32;
/// How many files a note names.
const MAX_NAMED: usize = 3;

/// The files whose buffers differ from the disk.
// Held only to access the sets.
#[derive(Debug, Default)]
pub(super) struct UnsavedFiles(Mutex<KnownBuffers>);

#[derive(Debug, Default)]
struct KnownBuffers {
    unsaved: BTreeSet<PathBuf>,
    /// The hashes of the editor's text and the disk's after the editor had converted it on saving.
    converted: BTreeMap<PathBuf, ([u8; 32], [u8; 32])>,
    /// The files that a call has changed on the disk since the editor last showed the disk's text, with the
    /// SHA-256 of the contents before.
    replaced: BTreeMap<PathBuf, Vec<String>>,
    /// True once the editor has shown a text, false once it has shown an empty one of a file that has one on the disk.
    shows_text: Option<bool>,
}

/// How the editor's text of a file compares with the disk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferState {
    Saved,
    Unsaved,
    /// It is the text from before one of our calls changed the file: the editor has not reloaded it.
    Stale,
    /// The user has changed it, and one of our calls has changed the file on the disk.
    Conflict,
}

impl UnsavedFiles {
    /// Compares the editor's text with the disk's, and remembers the result. Hashes the text if the file was
    /// changed on the disk.
    pub(super) fn compare(&self, path: &Path, on_disk: Option<&str>, shown: &str) -> BufferState {
        let forms = if self.is_replaced(path) { forms(shown) } else { Vec::new() };
        let is_saved =
            on_disk.is_some_and(|saved| saved == shown || with_lf(saved) == with_lf(shown));
        let mut buffers = self.0.lock();
        let KnownBuffers { unsaved, replaced, shows_text, .. } = &mut *buffers;
        *shows_text = if shown.is_empty() { *shows_text } else { Some(true) };
        let state = match replaced.get(path) {
            _ if is_saved => {
                replaced.remove(path);
                BufferState::Saved
            }
            None => BufferState::Unsaved,
            Some(before) if forms.iter().any(|form| before.contains(form)) => BufferState::Stale,
            Some(_) => BufferState::Conflict,
        };
        if matches!(state, BufferState::Saved | BufferState::Stale) {
            unsaved.remove(path);
        } else if unsaved.len() < MAX_REMEMBERED {
            unsaved.insert(path.to_path_buf());
        }
        state
    }

    /// Returns true if an empty text of the editor says nothing about this file. Some editors answer with it for a file
    /// that does not exist, and some for every file, so they are believed once they have shown the text of another one.
    fn distrusts(&self, on_disk: Option<&FileText>) -> bool {
        let shows_text = &mut self.0.lock().shows_text;
        on_disk.is_none_or(|saved| !saved.text.is_empty() && !*shows_text.get_or_insert(false))
    }

    /// Returns true if the editor has shown nothing but empty texts for files that have one.
    fn is_blank(&self) -> bool {
        self.0.lock().shows_text == Some(false)
    }

    /// Records that a file is being changed on the disk and not in the editor. `before` is the SHA-256 of its
    /// content in hexadecimal.
    pub(super) fn note_replaced(&self, path: &Path, before: String) {
        let mut buffers = self.0.lock();
        if buffers.replaced.len() < MAX_REPLACED || buffers.replaced.contains_key(path) {
            let contents = buffers.replaced.entry(path.to_path_buf()).or_default();
            if contents.len() < MAX_CONTENTS {
                contents.push(before);
            }
        }
    }

    fn is_replaced(&self, path: &Path) -> bool {
        self.0.lock().replaced.contains_key(path)
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.0.lock().unsaved.contains(path)
    }

    /// Records that the editor has saved a text that it shows as another one.
    fn note_converted(&self, path: &Path, shown: &FileText, on_disk: &FileText) {
        let converted = &mut self.0.lock().converted;
        if converted.len() >= MAX_REMEMBERED {
            converted.clear();
        }
        converted.insert(path.to_path_buf(), (shown.hash(), on_disk.hash()));
    }

    /// Returns true if the two texts are the same, or were recorded as such.
    pub(super) fn is_saved(&self, path: &Path, shown: &FileText, on_disk: &FileText) -> bool {
        let both = (shown.hash(), on_disk.hash());
        both.0 == both.1 || self.0.lock().converted.get(path) == Some(&both)
    }

    fn below(&self, folder: Option<&Path>) -> Vec<PathBuf> {
        let buffers = self.0.lock();
        let all = buffers.unsaved.iter();
        all.filter(|path| folder.is_none_or(|top| path.starts_with(top))).cloned().collect()
    }
}

/// The hashes of the forms in which an editor may show this text: with other line ends, or without the last one.
fn forms(shown: &str) -> Vec<String> {
    let lines = with_lf(shown);
    let open = lines.strip_suffix('\n').unwrap_or(&lines);
    let texts = [open.to_owned(), format!("{open}\n")];
    let forms = texts.into_iter().flat_map(|text| [with_crlf(&text), text]);
    forms.map(|form| sha256_hex(form.as_bytes())).collect()
}

impl Files {
    /// Records what a command has changed on the disk, where an editor may not see it.
    pub fn note_changed_on_disk(&self, changes: &[FileChange]) {
        for FileChange { path, before, .. } in changes.iter().filter(|_| self.buffers.is_some()) {
            match before {
                FileState::File { hash, .. } => self.unsaved.note_replaced(path, hash.clone()),
                FileState::Absent => self.unsaved.note_replaced(path, sha256_hex(b"")),
                _ => {}
            }
        }
    }

    /// A line for the model about a file of which it reads the editor's text; empty if it may be changed.
    pub fn conflict_note(&self, target: &ResolvedPath) -> String {
        let path = &target.path;
        if !self.unsaved.is_replaced(path) || !self.unsaved.contains(path) {
            return String::new();
        }
        format!("[this is the editor's text; the file {}]\n", FileError::Conflict)
    }

    /// A line for the model that names the files below `folder` (or anywhere) with unsaved changes;
    /// empty if there are none. `who` is the subject and auxiliary verb of the sentence, such as
    /// `commands do`.
    pub fn unsaved_note(&self, folder: Option<&Path>, who: &str) -> String {
        let files = self.unsaved.below(folder);
        if files.is_empty() {
            return String::new();
        }
        let shown = files.into_iter().map(|path| {
            self.roots.display_path(&ResolvedPath { path, scope: PathScope::Workspace })
        });
        let names = join_first(&shown.collect::<Vec<_>>(), MAX_NAMED);
        format!("[unsaved changes in the editor, which {who} not see: {names}]\n")
    }
}

const BROKEN_CHARACTERS: &str =
    "the editor's text of it came with broken characters, perhaps not as UTF-8";

/// Returns true if characters were replaced on the way from the editor. An edit would write the text back without them.
fn has_lost_characters(shown: &str, on_disk: Option<&FileText>) -> bool {
    shown.contains('\u{fffd}') && on_disk.is_none_or(|saved| !saved.text.contains('\u{fffd}'))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::files::Roots;

    /// Shows the old text of each file, once it is connected again.
    #[derive(Default)]
    struct ReturningEditor {
        is_back: AtomicBool,
    }

    impl EditorBuffers for ReturningEditor {
        fn can_read(&self) -> bool {
            self.is_back.load(Ordering::Relaxed)
        }

        fn can_write(&self) -> bool {
            false
        }

        fn read<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<String, BufferError>> {
            Box::pin(async { Ok("old\n".to_owned()) })
        }

        fn write<'a>(&'a self, _: &'a Path, _: &'a str) -> BoxFuture<'a, Result<(), BufferError>> {
            Box::pin(async { Err(BufferError::NotFound) })
        }
    }

    #[tokio::test]
    async fn an_old_text_in_an_editor_that_could_not_be_read_meanwhile_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "old\n").unwrap();
        let editor = Arc::new(ReturningEditor::default());
        let buffers: Arc<dyn EditorBuffers> = Arc::<ReturningEditor>::clone(&editor);
        let files = Files::new(Roots::new(folder.path()).unwrap(), Some(buffers));
        let target = files.resolve(path).await.unwrap();
        let before = files.read(&target).await.unwrap();
        let cancel = CancellationToken::new();
        files.write(&target, Some(&before), "new\n", &cancel).await.unwrap();
        editor.is_back.store(true, Ordering::Relaxed);
        assert_eq!(files.read(&target).await.unwrap().text, "new\n");
    }

    #[test]
    fn characters_that_only_the_editor_s_text_has_lost_are_noticed() {
        let whole = FileText::new("caf\u{e9}\n", TextSource::Disk);
        let broken = FileText::new("caf\u{fffd}\n", TextSource::Disk);
        assert!(has_lost_characters(&broken.text, Some(&whole)));
        assert!(has_lost_characters(&broken.text, None));
        assert!(!has_lost_characters(&broken.text, Some(&broken)));
        assert!(!has_lost_characters(&whole.text, Some(&broken)));
    }
}
