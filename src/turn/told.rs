//! Keeps track of what was told already: the notices that the user gets once, and the context that the model has
//! as long as it is not left out of the conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::prompt::folder_instructions::ToldFolders;
use turnwright_policy::permission::Mode;

/// A notice that the user gets once in a session, be it about the session itself or about a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnceNotice {
    /// The server truncates prompts.
    Truncation,
    /// The window is small.
    SmallWindow,
    /// The size of the window is only assumed.
    AssumedWindow,
    /// The base URL lacks its version.
    BaseUrl,
}

/// The notes that the user and the model of a conversation have been given. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// A bit for each [`OnceNotice`], which a session shares with its helpers.
    notices: Arc<AtomicU8>,
    // Held only to access a small set.
    context: Arc<Mutex<ToldContext>>,
}

#[derive(Debug, Default)]
struct ToldContext {
    /// The mode that the model was last told; `None` if that message is no longer in its context.
    mode: Option<Mode>,
    /// The folders whose instructions the model has.
    folders: ToldFolders,
    /// True if the user was told that instructions, notes and skills could not be read.
    lacks_instructions: bool,
}

impl Told {
    /// The state of a new helper: its model knows nothing yet, but its user is the one of the session.
    pub(super) fn for_helper(&self) -> Told {
        Told { notices: Arc::clone(&self.notices), context: Arc::default() }
    }

    /// Marks the notice as told. Returns true if it was not told before.
    pub(super) fn first_time(&self, notice: OnceNotice) -> bool {
        let bit = 1 << notice as u8;
        self.notices.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Forgets everything that was told to the model, because it may no longer be in its context.
    pub(super) fn forget_context(&self) {
        let mut context = self.context.lock();
        context.mode = None;
        context.folders = ToldFolders::default();
    }

    /// Marks the mode as unknown to the model.
    pub(crate) fn forget_mode(&self) {
        self.context.lock().mode = None;
    }

    /// Returns true if the model was told a mode.
    pub(super) fn knows_mode(&self) -> bool {
        self.context.lock().mode.is_some()
    }

    /// Marks this mode as told. Returns the one before.
    pub(super) fn tell_mode(&self, mode: Mode) -> Option<Mode> {
        self.context.lock().mode.replace(mode)
    }

    /// The folders whose instructions the model has.
    pub(super) fn folders(&self) -> MappedMutexGuard<'_, ToldFolders> {
        MutexGuard::map(self.context.lock(), |context| &mut context.folders)
    }

    /// Notes whether the instructions, notes and skills could not be read. Returns the answer of the time before.
    pub(super) fn set_lacks_instructions(&self, lacks_instructions: bool) -> bool {
        std::mem::replace(&mut self.context.lock().lacks_instructions, lacks_instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_news_once_for_a_session_and_its_helpers_together() {
        let session = Told::default();
        let helper = session.for_helper();
        assert!(helper.first_time(OnceNotice::BaseUrl));
        assert!(
            !session.first_time(OnceNotice::BaseUrl) && session.first_time(OnceNotice::SmallWindow)
        );
    }

    #[test]
    fn the_model_of_a_helper_is_told_everything_itself() {
        let session = Told::default();
        session.tell_mode(Mode::Plan);
        assert!(session.knows_mode() && !session.for_helper().knows_mode());
    }
}
