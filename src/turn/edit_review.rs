//! The review of a turn's edits: before the turn's closing check, language servers report on all files that the turn
//! has changed. The model is told of errors that are new since the turn began, each once.

use std::path::Path;
use std::time::Duration;

use super::closing::ClosingWords;
use super::{Turn, TurnStep};
use turnwright_lsp::{FileReport, counted_errors};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;
use turnwright_workspace::files::display;

/// The name under which a recording stores the result of the review.
const REVIEW: &str = "edit review";
/// The longest wait for the servers.
const TIME_LIMIT: Duration = Duration::from_secs(8);
/// The most times in one turn that the model is told of new errors.
const MAX_ROUNDS: u32 = 3;
/// The most files that the model is told of, and the most that a notice to the user names.
const MAX_FILES: usize = 10;
const MAX_NAMED: usize = 3;

impl Turn {
    /// Returns the step in which the model handles the errors that its edits caused, if there are new ones.
    pub(super) async fn review_edits(&mut self) -> Option<TurnStep> {
        let words = match self.recorded_words(REVIEW) {
            Some(words) => words,
            None => {
                let found = self.review_words().await.unwrap_or_default();
                self.record_words(REVIEW, found)
            }
        };
        self.say_words(words)
    }

    async fn review_words(&mut self) -> Option<ClosingWords> {
        let languages = self.conversation.env.languages().cloned()?;
        // A helper's edits are reviewed by the turn that started the helper.
        let may_review = self.says_done() && !self.is_helper();
        if !may_review || self.checks.reviews >= MAX_ROUNDS || !self.budget.has_request() {
            return None;
        }
        let reports = self.cancel.run_until_cancelled(languages.review(TIME_LIMIT)).await?;
        let words = words_about(&reports, self.conversation.env.files.roots().real_cwd());
        self.checks.reviews += u32::from(words.request.is_some());
        Some(words)
    }
}

/// Words the reports for the model and the user. Missing results are mentioned to the user only, because the model
/// cannot do anything about them.
fn words_about(reports: &[FileReport], cwd: &Path) -> ClosingWords {
    let count: usize = reports.iter().map(FileReport::count).sum();
    if count == 0 {
        let unknown = reports.iter().filter(|report| report.new_errors.is_err());
        let names: Vec<_> = unknown.map(|report| name(report, cwd)).collect();
        let named = text::join_first(&names, MAX_NAMED);
        let notice = format!("No language server has checked the latest version of {named} yet.");
        return ClosingWords { notice: (!names.is_empty()).then_some(notice), request: None };
    }
    let mut request = "Language servers were asked after your edits. This is new since the turn began; correct what \
                       your edits have caused, or say why it stays:\n"
        .to_owned();
    let with_errors = reports.iter().filter(|report| report.count() > 0);
    for report in with_errors.take(MAX_FILES) {
        request.push_str(&format!("{}\n", report.for_model(&name(report, cwd))));
    }
    let found = counted_errors(count);
    ClosingWords {
        notice: Some(format!("Language servers find {found}. The model is told.")),
        request: Some(super::redacted(&request)),
    }
}

fn name(report: &FileReport, cwd: &Path) -> String {
    let path = report.file.strip_prefix(cwd).unwrap_or(&report.file);
    escape_hidden_line(&display(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(file: &str, new_errors: Result<Vec<String>, String>) -> FileReport {
        FileReport { server: "gopls".to_owned(), file: file.into(), new_errors }
    }

    #[test]
    fn the_model_is_told_of_errors_only_and_the_user_of_what_is_not_known() {
        let cwd = Path::new("/w");
        let unknown = report("/w/a.go", Err("late".to_owned()));
        let fine = report("/w/b.go", Ok(Vec::new()));
        let broken = Ok(vec!["2:1: m".to_owned()]);
        assert_eq!(words_about(std::slice::from_ref(&fine), cwd), ClosingWords::default());
        let words = words_about(&[unknown.clone(), fine.clone()], cwd);
        let notice = "No language server has checked the latest version of a.go yet.";
        assert_eq!((words.notice.as_deref(), words.request), (Some(notice), None));
        let words = words_about(&[unknown, fine, report("/w/in/c.go", broken)], cwd);
        assert_eq!(words.notice.unwrap(), "Language servers find 1 new error. The model is told.");
        let request = words.request.unwrap();
        assert!(request.contains("[gopls: 1 new error in in/c.go]\n2:1: m\n"), "{request}");
        assert!(!request.contains("a.go") && !request.contains("b.go"), "{request}");
    }
}
