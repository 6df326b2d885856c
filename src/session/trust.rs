//! `/trust`: shows what a project wants beyond what it gets, and puts exactly that in force when
//! the user says so by typing its code. Never a question: some editors answer those by themselves.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::Host;
use super::project_servers::SERVERS_FILE;
use super::standing::{PROJECT_FILE, ProjectFile, Standing, stand};
use turnwright_types::effect::{fenced, visible};
use turnwright_types::ids::MessageId;
use turnwright_types::message::Stop;
use crate::trust::Print;
use crate::turn::Equipment;

/// Bytes of a file that can be trusted. Nobody reads more.
const LONGEST_SHOWN: usize = 32 * 1024;

/// The contents that the user was last shown. The code is only the beginning of one, so that
/// comparing codes would not be enough.
// A std mutex: held to copy a few bytes.
pub(super) type Shown = Arc<Mutex<Vec<Print>>>;

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

    fn shown(&self, prints: Vec<Print>) -> Vec<Print> {
        std::mem::replace(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner), prints)
    }

    fn show(&self) -> String {
        let standing = self.stand();
        self.shown(standing.files.iter().map(print).collect());
        let files: Vec<_> = standing.files.iter().map(described).collect();
        let mut text = files.join("\n\n");
        if files.is_empty() {
            text = format!(
                "There is nothing in {PROJECT_FILE} or {SERVERS_FILE} of this project to be trusted."
            );
        }
        add_problems(&mut text, &standing);
        text
    }

    fn trust(&self, code: &str) -> String {
        let again = "Nothing was trusted. Type `/trust` to see what there is.";
        let mut shown = self.shown(Vec::new());
        let files: Vec<_> = self.stand().files.into_iter().filter(can_be_shown).collect();
        if files.is_empty() || shown.is_empty() {
            return again.to_owned();
        }
        let is_shown = |it: &&ProjectFile| shown.contains(&print(it));
        let names_it = |it: &Print| code.eq_ignore_ascii_case(it.code());
        let Some(file) = files.iter().filter(is_shown).find(|it| names_it(&print(it))) else {
            let changed = files.iter().find(|it| !is_shown(it));
            return match changed {
                Some(file) => format!("{} has changed since it was shown. {again}", file.what),
                None => format!("That is not the code. {again}"),
            };
        };
        let trust = &self.host.trust;
        let roots = self.equipment.bench.files.roots();
        if let Err(error) = trust.trust(roots.real_cwd(), file.what, file.text.as_bytes()) {
            return format!("It could not be written down: {error}. Nothing was trusted.");
        }
        let trusted = print(file);
        shown.retain(|it| *it != trusted);
        self.shown(shown);
        let standing = self.stand();
        let effect = match file.what {
            SERVERS_FILE => "Its servers are started in sessions that are opened from now on.",
            _ => {
                "Its rules are in force; a mode and the settings of the sandbox count for sessions \
                 that are opened from now on."
            }
        };
        let mut text = format!(
            "{} is trusted as it is now. {effect} `/trust forget` takes it back.",
            file.what
        );
        add_problems(&mut text, &standing);
        self.equipment.law.set(standing.law);
        text
    }

    fn forget(&self) -> String {
        self.shown(Vec::new());
        let folder = self.equipment.bench.files.roots().real_cwd();
        let text = match self.host.trust.forget(folder) {
            Ok(0) => "Nothing of this project was trusted.".to_owned(),
            Ok(_) => "Nothing of this project is trusted any more, and its rules give no \
                      permissions. A mode and the settings of the sandbox are narrower, and its \
                      MCP servers are not started, from the next session on."
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

fn print(file: &ProjectFile) -> Print {
    Print::of(file.text.as_bytes())
}

/// What the user is told of a file.
fn described(file: &ProjectFile) -> String {
    let what = file.what;
    if file.is_trusted {
        return format!(
            "{what} of this project is trusted as it is now. `/trust forget` takes it back."
        );
    }
    if !file.is_withheld() {
        return format!(
            "{what} of this project asks for nothing that needs your trust: what it says only \
             makes things stricter, and is in force."
        );
    }
    if !can_be_shown(file) {
        return format!(
            "{what} is larger than {LONGEST_SHOWN} bytes. Nobody reads that, so it cannot be \
             trusted."
        );
    }
    let wants = match file.plainly.as_slice() {
        [] => format!("Not in force is: {}.", file.wants.join(", ")),
        lines => format!("Not started is:\n\n{}", fenced(&lines.join("\n"))),
    };
    format!(
        "{what} of this project says:\n\n{}\n\n{wants}\n\nIf you trust exactly this, type \
         `/trust {}`. When the file changes, it is not trusted any more.",
        fenced(&visible(&file.text)),
        print(file).code(),
    )
}

fn add_problems(text: &mut String, standing: &Standing) {
    let is_about_files = |it: &&String| it.contains(PROJECT_FILE) || it.contains(SERVERS_FILE);
    for problem in standing.problems.iter().filter(is_about_files) {
        text.push_str(&format!("\n\n{problem}."));
    }
}
