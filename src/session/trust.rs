//! `/trust`: shows what a project wants beyond what it gets, and puts exactly that in force when
//! the user says so by typing its code. Never a question: some editors answer those by themselves.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::Host;
use super::standing::{PROJECT_FILE, ProjectFile, Standing, stand};
use crate::effect::{fenced, visible};
use crate::ids::MessageId;
use crate::message::Stop;
use crate::trust::Print;
use crate::turn::Equipment;

/// Bytes of a file that can be trusted. Nobody reads more.
const LONGEST_SHOWN: usize = 32 * 1024;

/// The content that the user was last shown. The code is only its beginning, so that comparing
/// codes would not be enough.
// A std mutex: held to copy a few bytes.
pub(super) type Shown = Arc<Mutex<Option<Print>>>;

/// Answers `/trust` with what stands behind it. A cancel leaves it to itself.
pub(super) async fn trust(
    host: Arc<Host>,
    equipment: Equipment,
    shown: Shown,
    words: String,
    message: MessageId,
    cancel: CancellationToken,
) -> Stop {
    let speaker = equipment.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let case = Case { host: &host, equipment: &equipment, shown: &shown };
        match words.as_str() {
            "" => case.show(),
            "forget" => case.forget(),
            code => case.trust(code),
        }
    });
    let Some(looked) = cancel.run_until_cancelled(looking).await else { return Stop::Cancelled };
    let text = looked.unwrap_or_else(|error| format!("The files could not be read: {error}."));
    speaker.say(message, text);
    Stop::EndTurn
}

struct Case<'a> {
    host: &'a Host,
    equipment: &'a Equipment,
    shown: &'a Shown,
}

impl Case<'_> {
    fn stand(&self) -> Standing {
        stand(self.host.config(), &self.host.trust, self.equipment.bench.files.roots())
    }

    fn shown(&self, print: Option<Print>) -> Option<Print> {
        std::mem::replace(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner), print)
    }

    fn show(&self) -> String {
        let standing = self.stand();
        let print = standing.project.as_ref().map(|it| Print::of(it.text.as_bytes()));
        let mut text = match (&standing.project, &print) {
            (Some(project), Some(print)) => described(project, print),
            _ => format!("There is nothing in {PROJECT_FILE} of this project to be trusted."),
        };
        self.shown(print);
        add_problems(&mut text, &standing);
        text
    }

    fn trust(&self, code: &str) -> String {
        let again = "Nothing was trusted. Type `/trust` to see what there is.";
        let Some(project) = self.stand().project.filter(can_be_shown) else {
            return again.to_owned();
        };
        let print = Print::of(project.text.as_bytes());
        match self.shown(None) {
            Some(shown) if shown != print => {
                return format!("{PROJECT_FILE} has changed since it was shown. {again}");
            }
            Some(_) if code.eq_ignore_ascii_case(print.code()) => {}
            Some(_) => return format!("That is not the code. {again}"),
            None => return again.to_owned(),
        }
        let trust = &self.host.trust;
        let roots = self.equipment.bench.files.roots();
        if let Err(error) = trust.trust(roots.real_cwd(), PROJECT_FILE, project.text.as_bytes()) {
            return format!("It could not be written down: {error}. Nothing was trusted.");
        }
        let standing = self.stand();
        let mut text = format!(
            "{PROJECT_FILE} is trusted as it is now. Its rules are in force; a mode and the settings \
             of the sandbox count for sessions that are opened from now on. `/trust forget` takes \
             it back."
        );
        add_problems(&mut text, &standing);
        self.equipment.law.set(standing.law);
        text
    }

    fn forget(&self) -> String {
        self.shown(None);
        let folder = self.equipment.bench.files.roots().real_cwd();
        let text = match self.host.trust.forget(folder) {
            Ok(0) => "Nothing of this project was trusted.".to_owned(),
            Ok(_) => "Nothing of this project is trusted any more, and its rules give no \
                      permissions. A mode and the settings of the sandbox are narrower from the \
                      next session on."
                .to_owned(),
            Err(error) => format!("That could not be removed: {error}."),
        };
        self.equipment.law.set(self.stand().law);
        text
    }
}

fn can_be_shown(project: &ProjectFile) -> bool {
    project.text.len() <= LONGEST_SHOWN
}

/// What the user is told of the file.
fn described(project: &ProjectFile, print: &Print) -> String {
    if project.is_trusted {
        return format!(
            "{PROJECT_FILE} of this project is trusted as it is now. `/trust forget` takes it back."
        );
    }
    if !project.is_withheld() {
        return format!(
            "{PROJECT_FILE} of this project asks for nothing that needs your trust: what it says \
             only makes things stricter, and is in force."
        );
    }
    if !can_be_shown(project) {
        return format!(
            "{PROJECT_FILE} is larger than {LONGEST_SHOWN} bytes. Nobody reads that, so it cannot \
             be trusted."
        );
    }
    format!(
        "{PROJECT_FILE} of this project says:\n\n{}\n\nNot in force is: {}.\n\nIf you trust exactly \
         this, type `/trust {}`. When the file changes, it is not trusted any more.",
        fenced(&visible(&project.text)),
        project.wants.join(", "),
        print.code(),
    )
}

fn add_problems(text: &mut String, standing: &Standing) {
    for problem in standing.problems.iter().filter(|it| it.contains(PROJECT_FILE)) {
        text.push_str(&format!("\n\n{problem}."));
    }
}
