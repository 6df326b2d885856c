//! Runs real commands of `cmd` and checks above all that they end, with everything that they have started.
#![expect(clippy::disallowed_methods, reason = "a test finds its own program")]

use std::ffi::OsString;
use std::fs;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;

use super::*;

/// In a folder with this file, the program of these tests holds [`HELD`].
const INVITATION: &str = "hold-a-file";
const HELD: &str = "held";

/// The program of these tests' commands. It holds a file exclusively until it is ended.
#[test]
#[ignore = "it is a program of other tests"]
fn hold_file() {
    if Path::new(INVITATION).exists() {
        let held = open_alone(Path::new(HELD));
        std::thread::sleep(Duration::from_secs(300));
        drop(held);
    }
}

fn open_alone(path: &Path) -> std::io::Result<fs::File> {
    fs::File::options().write(true).create(true).truncate(false).share_mode(0).open(path)
}

/// A folder in which commands run, and the list of jobs.
struct Fixture {
    folder: tempfile::TempDir,
    jobs: Jobs,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join(INVITATION)).unwrap();
        Fixture { jobs: Jobs::new(folder.path().join("outputs")), folder }
    }

    fn spec(&self, command: &str) -> CommandSpec {
        let variables = std::env::vars_os();
        CommandSpec {
            command: command.to_owned(),
            workdir: self.folder.path().to_owned(),
            environment: Environment::scrubbed(variables, &[]),
            extra_variables: Vec::new(),
            sandbox: None,
            network: None,
            accepts_input: false,
        }
    }

    async fn start(&self, command: &str) -> Arc<Job> {
        start(&self.jobs, &self.spec(command)).await
    }

    async fn finish(&self, command: &str) -> (String, JobEnd) {
        let job = self.start(command).await;
        let end = job.wait_for_end().await;
        (job.take_output().text, end)
    }

    /// Returns true if [`hold_file`] is running.
    fn is_held(&self) -> bool {
        let held = self.folder.path().join(HELD);
        held.exists() && open_alone(&held).is_err()
    }

    async fn wait_until_held(&self, is_held: bool) {
        let begun = Instant::now();
        while self.is_held() != is_held {
            assert!(begun.elapsed() < Duration::from_secs(100), "it is never {is_held}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn start(jobs: &Jobs, spec: &CommandSpec) -> Arc<Job> {
    let slot = jobs.admit(&spec.command).unwrap();
    slot.run(Box::new(ProcessGroup::start(spec).await.unwrap()), spec.temp_folder(), None)
}

/// The command line that runs [`hold_file`].
fn hold_line() -> String {
    let program = std::env::current_exe().unwrap();
    format!("\"{}\" --ignored --exact exec::windows_tests::hold_file", program.display())
}

/// The same as a grandchild, beside one that the command waits for.
fn hold_in_background(then: &str) -> String {
    format!("start /b \"\" {} & {then}", hold_line())
}

#[tokio::test]
async fn output_of_both_streams_comes_in_order_with_the_exit_code() {
    let fixture = Fixture::new();
    let line = "echo one& echo two>&2& echo three& exit 3";
    let (text, end) = fixture.finish(line).await;
    assert_eq!(text.replace('\r', ""), "one\ntwo\nthree\n");
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(3)));
    assert!(!end.had_leftovers);
}

#[tokio::test]
async fn quotes_and_percent_signs_reach_the_program_as_they_are_written() {
    let fixture = Fixture::new();
    for (line, expected) in [
        (r#"echo "a b" 'c' d"e"#, r#""a b" 'c' d"e"#),
        (r#""%ComSpec%" /d /c echo "x y""#, r#""x y""#),
        ("echo 100%", "100%"),
        ("echo a^&b", "a&b"),
    ] {
        assert_eq!(fixture.finish(line).await.0.trim_end(), expected, "{line}");
    }
}

#[tokio::test]
async fn a_bare_name_never_means_a_program_of_the_project() {
    // The `cmd` of Wine always looks there.
    if Path::new("C:\\windows\\system32\\winecfg.exe").exists() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.folder.path().join("planted.cmd"), "@echo it ran").unwrap();
    let (text, end) = fixture.finish("planted").await;
    assert!(!text.contains("it ran"), "{text}");
    assert_ne!(end.reason, EndReason::Exited(CommandExit::Code(0)));
    assert_eq!(fixture.finish(".\\planted").await.0.trim_end(), "it ran");
}

/// As a hook's line is run.
#[tokio::test]
async fn a_line_with_pipes_for_input_and_output_keeps_its_quotes() {
    let fixture = Fixture::new();
    let line = r#""%ComSpec%" /d /c echo "x y"& echo z"#;
    let program = PipedProgram {
        command_line: ["cmd", "/d", "/s", "/c", line].map(OsString::from).into(),
        workdir: fixture.folder.path().to_owned(),
        environment: fixture.spec("").environment,
        sandbox: None,
    };
    let (_group, mut pipes) = ProcessGroup::start_piped(&program).await.unwrap();
    let mut printed = String::new();
    pipes.stdout.read_to_string(&mut printed).await.unwrap();
    assert_eq!(printed.replace('\r', ""), "\"x y\"\nz\n");
}

#[tokio::test]
async fn a_command_of_several_lines_is_refused() {
    let fixture = Fixture::new();
    let spec = fixture.spec("echo a\necho b");
    let error = ProcessGroup::start(&spec).await.unwrap_err();
    assert!(error.to_string().contains("first line"), "{error}");
}

#[tokio::test]
async fn no_command_runs_in_the_folder_of_windows_instead_of_one_that_cmd_does_not_take() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("cd");
    let verbatim = fs::canonicalize(fixture.folder.path()).unwrap();
    assert!(verbatim.to_string_lossy().starts_with(r"\\?\"));
    for workdir in [verbatim, r"\\server\share".into(), "//server/share".into()] {
        spec.workdir = workdir;
        let error = ProcessGroup::start(&spec).await.unwrap_err();
        assert!(error.to_string().contains("drive letter"), "{error}");
    }
}

#[tokio::test]
async fn a_stopped_command_is_ended_at_once_with_all_that_it_has_started() {
    let fixture = Fixture::new();
    for line in [hold_line(), hold_in_background(&hold_line())] {
        let job = fixture.start(&line).await;
        fixture.wait_until_held(true).await;
        job.stop();
        assert_eq!(job.wait_for_end().await.reason, EndReason::Stopped, "{line}");
        fixture.wait_until_held(false).await;
    }
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_is_ended_with_it() {
    let fixture = Fixture::new();
    let wait = r"for /l %i in (1,1,100000) do @if exist held exit 5";
    let (_, end) = fixture.finish(&hold_in_background(wait)).await;
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(5)));
    assert!(end.had_leftovers);
    fixture.wait_until_held(false).await;
}

#[tokio::test]
async fn no_command_runs_for_ever() {
    let mut fixture = Fixture::new();
    fixture.jobs =
        Jobs::new(fixture.folder.path().join("o")).with_time_limit(Duration::from_millis(500));
    let (_, end) = fixture.finish(&hold_line()).await;
    assert_eq!(end.reason, EndReason::TimedOut);
    fixture.wait_until_held(false).await;
}

#[tokio::test]
async fn dropping_a_group_or_the_jobs_ends_them() {
    let fixture = Fixture::new();
    let group =
        ProcessGroup::start(&fixture.spec(&hold_in_background(&hold_line()))).await.unwrap();
    fixture.wait_until_held(true).await;
    drop(group);
    fixture.wait_until_held(false).await;

    let Fixture { folder, jobs } = fixture;
    let fixture = Fixture { folder, jobs: Jobs::new("unused".into()) };
    let job = start(&jobs, &fixture.spec(&hold_line())).await;
    fixture.wait_until_held(true).await;
    drop(jobs);
    assert_eq!(job.wait_for_end().await.reason, EndReason::Stopped);
    fixture.wait_until_held(false).await;
}

#[tokio::test]
async fn a_job_takes_input_and_its_end() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("set /p x=& call echo got %x%");
    spec.accepts_input = true;
    let job = start(&fixture.jobs, &spec).await;
    job.write_input(b"one\r\n".to_vec()).await.unwrap();
    let end = job.wait_for_end().await;
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(0)));
    let error = job.write_input(b"x".to_vec()).await.unwrap_err();
    assert_eq!(error.to_string(), "it has ended");
}
