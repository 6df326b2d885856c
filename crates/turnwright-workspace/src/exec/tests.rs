//! Runs real processes and checks above all that they end.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use super::jobs::SpaceLimits;
use super::*;

fn spec(command: &str) -> CommandSpec {
    let variables = [("PATH".into(), "/usr/bin:/bin".into())];
    CommandSpec {
        command: command.to_owned(),
        workdir: "/tmp".into(),
        environment: Environment::scrubbed(variables, &[]),
        extra_variables: Vec::new(),
        sandbox: None,
        network: None,
        accepts_input: false,
    }
}

/// An empty list of jobs and the folder for their output.
fn jobs() -> (Jobs, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Jobs::new(folder.path().join("outputs")), folder)
}

async fn start(jobs: &Jobs, spec: &CommandSpec) -> Arc<Job> {
    let slot = jobs.admit(&spec.command).unwrap();
    slot.run(Box::new(ProcessGroup::start(spec).await.unwrap()), spec.temp_folder(), None)
}

/// Runs a command to its end, for at most 20 seconds.
async fn finish(command: &str) -> (String, JobEnd) {
    let (jobs, _folder) = jobs();
    let jobs = jobs.with_time_limit(Duration::from_secs(20));
    let job = start(&jobs, &spec(command)).await;
    let end = job.wait_for_end().await;
    (job.take_output().text, end)
}

/// True if a `sleep` of this many seconds is alive. The shell that starts it does not count.
fn is_alive(seconds: &str) -> bool {
    let word = &format!("sleep\0{seconds}");
    if cfg!(not(target_os = "linux")) {
        return ps().contains(&word.replace('\0', " "));
    }
    let processes = std::fs::read_dir("/proc").unwrap();
    processes.filter_map(Result::ok).any(|entry| {
        let path = entry.path().join("cmdline");
        std::fs::read(path).is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    })
}

#[expect(clippy::disallowed_methods, reason = "a test looks at all processes")]
fn ps() -> String {
    let output = std::process::Command::new("ps").args(["-axo", "command"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn wait_until_dead(word: &str) {
    let begun = Instant::now();
    while is_alive(word) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{word} is still alive");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_command_that_begins_with_a_dash_is_no_option_of_the_shell() {
    let (output, end) = finish("-i; echo done").await;
    assert!(output.contains("-i: ") && output.ends_with("done\n"), "{output}");
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(0)));
}

#[tokio::test]
async fn a_list_of_commits_that_nobody_edits_is_said_to_stay_as_it_is() {
    // As git starts the editor.
    let line = r#"sh -c "$GIT_SEQUENCE_EDITOR \"\$@\"" editor todo"#;
    let (output, end) = finish(line).await;
    assert_eq!(output, "Nobody edits the list here: set GIT_SEQUENCE_EDITOR.\n");
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(0)));
}

#[tokio::test]
async fn what_ends_by_itself_after_the_command_is_not_left_running() {
    // As a helper of Python's `multiprocessing` does, it ignores signals and ends when its pipe is closed.
    let helper = "(trap '' INT TERM; exec <p >/dev/null 2>&1; cat; sleep 0.01)";
    let folder = tempfile::tempdir().unwrap();
    let line = format!("cd {}; mkfifo p; {helper} & exec 9>p; rm p", folder.path().display());
    // On a busy machine its end may take longer once.
    for _ in 0..5 {
        if !finish(&line).await.1.had_leftovers {
            return;
        }
    }
    panic!("it counts as left running");
}

#[tokio::test]
async fn a_background_child_that_holds_the_pipe_does_not_wedge_and_is_ended() {
    for command in ["sleep 611.25 & echo started", "(yes & sleep 611.25) & echo started"] {
        let (text, end) = finish(command).await;
        assert!(text.starts_with("started\n") || command.contains("yes"), "{text}");
        assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(0)), "{command}");
        assert!(end.had_leftovers, "{command}");
        wait_until_dead("611.25").await;
    }
}

#[tokio::test]
async fn no_command_runs_for_ever() {
    let (jobs, _folder) = jobs();
    let jobs = jobs.with_time_limit(Duration::from_millis(100));
    let end = start(&jobs, &spec("sleep 619.25; true")).await.wait_for_end().await;
    assert_eq!(end.reason, EndReason::TimedOut);
    wait_until_dead("619.25").await;
}

#[tokio::test]
async fn a_background_command_may_run_as_long_as_its_session() {
    let (jobs, _folder) = jobs();
    let jobs = jobs.with_time_limit(Duration::ZERO);
    let mut slot = jobs.admit("a server").unwrap();
    slot.is_background = true;
    let group = ProcessGroup::start(&spec("sleep 0.1")).await.unwrap();
    let end = slot.run(Box::new(group), Vec::new(), None).wait_for_end().await;
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(0)));
}

#[tokio::test]
async fn a_command_that_fills_its_temporary_folder_is_stopped() {
    let (jobs, folder) = jobs();
    let space = SpaceLimits { most: 16 << 20, reserve: 0, step: 1 << 20 };
    let jobs = jobs.with_time_limit(Duration::from_secs(120)).with_space(space);
    let fill = "while :; do head -c 8000000 /dev/zero >> \"$TMPDIR/x\"; sleep 0.1; done";
    let mut spec = spec(fill);
    spec.extra_variables.push(("TMPDIR", folder.path().display().to_string()));
    let end = start(&jobs, &spec).await.wait_for_end().await;
    let EndReason::TempFolderFull(bytes) = end.reason else { panic!("{end:?}") };
    assert!(bytes > 16 << 20, "{bytes}");
}

#[tokio::test]
async fn dropping_the_jobs_or_a_group_kills_them() {
    let (jobs, _folder) = jobs();
    let job = start(&jobs, &spec("sleep 614.25 & sleep 614.25")).await;
    drop(jobs);
    assert_eq!(job.wait_for_end().await.reason, EndReason::Stopped);
    wait_until_dead("614.25").await;

    let group = ProcessGroup::start(&spec("sleep 620.25 & sleep 620.25")).await.unwrap();
    while !is_alive("620.25") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(group);
    wait_until_dead("620.25").await;
}

#[tokio::test]
async fn a_runtime_that_ends_takes_the_commands_with_it() {
    let ending = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (jobs, _folder) = jobs();
        runtime.block_on(async {
            start(&jobs, &spec("sleep 621.25 & sleep 621.25")).await;
            while !is_alive("621.25") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        drop(runtime);
    });
    ending.join().unwrap();
    wait_until_dead("621.25").await;
}

#[tokio::test]
async fn closing_waits_until_all_are_dead_and_starts_no_more() {
    let (jobs, _folder) = jobs();
    let deaf = start(&jobs, &spec("trap '' TERM; echo deaf; sleep 622.25; sleep 622.25")).await;
    deaf.wait_for_more_than(0).await;
    let dull = start(&jobs, &spec("sleep 622.25")).await;
    jobs.close().await;
    assert!(deaf.end().is_some() && dull.end().is_some());
    let late = start(&jobs, &spec("sleep 622.25")).await;
    assert_eq!(late.wait_for_end().await.reason, EndReason::Stopped);
    wait_until_dead("622.25").await;
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_an_error_and_gives_the_place_back() {
    let mut spec = spec("true");
    spec.workdir = "/nowhere".into();
    let (jobs, _folder) = jobs();
    let slot = jobs.admit("true").unwrap();
    assert!(ProcessGroup::start(&spec).await.is_err());
    drop(slot);
    assert_eq!(jobs.describe(), "There are no jobs.");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_zombie_is_left_of_what_has_left_the_group() {
    let (text, end) = finish("exec 2>&-; (setsid sh -c 'echo $$' &)").await;
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Code(0)));
    let process: u32 = text.trim().parse().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_running_command_has_left_behind_is_reaped_when_others_start() {
    let (jobs, _folder) = jobs();
    let spec = spec("(setsid sh -c 'echo $$' &); exec sleep 628.25");
    let job = start(&jobs, &spec).await;
    job.wait_for_more_than(1).await;
    let process: u32 = job.take_output().text.trim().parse().unwrap();
    let exists = || std::path::Path::new(&format!("/proc/{process}")).exists();
    let begun = Instant::now();
    while exists() {
        assert!(begun.elapsed().as_secs() < 60, "it was not reaped");
        finish("true").await;
    }
    assert!(job.end().is_none());
    job.stop();
    job.wait_for_end().await;
}

#[tokio::test]
async fn a_signal_that_the_agent_ignores_still_ends_a_command() {
    // Shells start what runs in the background like this.
    let before = signal_action::ignore(rustix::process::Signal::INT);
    let (text, end) = finish("kill -s INT $$; echo survived").await;
    signal_action::restore(rustix::process::Signal::INT, before);
    assert_eq!(end.reason, EndReason::Exited(CommandExit::Signal("SIGINT".to_owned())), "{text}");
}

#[tokio::test]
async fn a_command_that_does_not_read_its_input_can_be_stopped_all_the_same() {
    let (jobs, _folder) = jobs();
    let mut spec = spec("sleep 624.25");
    spec.accepts_input = true;
    let job = start(&jobs, &spec).await;
    let error = job.write_input(vec![b'x'; 1024 * 1024]).await.unwrap_err();
    assert_eq!(error.to_string(), "it does not read its input");
    job.stop();
    assert_eq!(job.wait_for_end().await.reason, EndReason::Stopped);
}

/// A command that runs until it is stopped, and records how long that may take.
struct EndlessCommand(Arc<OnceLock<Duration>>);

impl RunningCommand for EndlessCommand {
    fn next_output<'a>(
        &'a mut self,
        _: OutputSink<'a>,
    ) -> BoxFuture<'a, io::Result<Option<CommandExit>>> {
        Box::pin(std::future::pending())
    }

    fn drain<'a>(&'a mut self, _: OutputSink<'a>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, bool> {
        self.0.set(grace).unwrap();
        Box::pin(std::future::ready(true))
    }

    fn send_signal(&mut self, _: Signal) {}

    fn write_input<'a>(&'a mut self, _: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_command_has_longer_to_clean_up_if_the_user_stops_it_but_not_at_the_end_of_its_session() {
    let stops: [fn(&Jobs, &Job); 3] = [
        |_, job| job.stop_for_user(),
        |whole, _| whole.stop(),
        |whole, job| {
            whole.stop();
            job.stop_for_user();
        },
    ];
    let mut graces = Vec::new();
    for stop in stops {
        let (whole, folder) = jobs();
        let part = Jobs::new(folder.path().join("outputs")).within(&whole, "q".to_owned());
        let grace = Arc::new(OnceLock::new());
        let command = Box::new(EndlessCommand(Arc::clone(&grace)));
        let job = part.admit("true").unwrap().run(command, Vec::new(), None);
        stop(&whole, &job);
        job.wait_for_end().await;
        graces.push(*grace.get().unwrap());
    }
    assert!(graces[0] > graces[1] && graces[1] == graces[2], "{graces:?}");
}

#[tokio::test]
async fn a_command_at_the_time_limit_has_as_long_to_clean_up_as_one_that_the_user_stops() {
    let (all, _folder) = jobs();
    let limited = all.with_time_limit(Duration::ZERO);
    let grace = Arc::new(OnceLock::new());
    let command = Box::new(EndlessCommand(Arc::clone(&grace)));
    let job = limited.admit("true").unwrap().run(command, Vec::new(), None);
    assert_eq!(job.wait_for_end().await.reason, EndReason::TimedOut);
    assert_eq!(grace.get(), Some(&Duration::from_secs(1)));
}

#[tokio::test]
async fn there_are_at_most_16_and_those_that_have_ended_are_kept_for_a_while() {
    let (jobs, _folder) = jobs();
    let mut all = Vec::new();
    for _ in 0..16 {
        all.push(start(&jobs, &spec("exec sleep 625.25")).await);
    }
    let error = jobs.admit("one more").err().unwrap();
    // On a busy machine, sixteen commands are not started within a second.
    let listed = error.split_once("p1 `exec sleep 625.25` (running for ").unwrap().1;
    assert!(listed.split_once(" s); p2 ").unwrap().0.parse::<u32>().is_ok(), "{error}");
    all[3].stop();
    all[3].wait_for_end().await;
    let list = jobs.describe();
    assert!(list.contains("p4 `exec sleep 625.25` (stopped)"), "{list}");
    for _ in 0..40 {
        start(&jobs, &spec("true")).await.wait_for_end().await;
    }
    jobs.admit("one more").unwrap();
    assert!(jobs.find("p4").is_none() && jobs.find("p1").is_some() && jobs.find("p56").is_some());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_sandboxed_command_and_its_descendants_are_confined() {
    use turnwright_sandbox::SandboxProfile;
    if !turnwright_sandbox::can_confine() {
        eprintln!("NOT TESTED: no sandbox here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().canonicalize().unwrap();
    let inside = top.join("inside");
    let outside = top.join("outside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::create_dir(&outside).unwrap();
    let (jobs, _outputs) = jobs();
    let mut spec = spec(
        "echo x > f && cat f; echo \"agent:$SSH_AUTH_SOCK bus:$DBUS_SESSION_BUS_ADDRESS\"; \
         (setsid sh -c 'echo x > ../outside/f; echo over > over' &) 2>/dev/null; \
         until test -s over; do :; done; ls ../outside; sleep 626.25",
    );
    spec.workdir = inside.clone();
    let variables = [
        ("PATH", "/usr/bin:/bin"),
        ("SSH_AUTH_SOCK", "/tmp/agent"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/0/bus"),
    ]
    .map(|(name, value)| (name.into(), value.into()));
    spec.environment = Environment::scrubbed(variables, &[]);
    spec.sandbox =
        Some(SandboxProfile { writable: vec![inside.clone()], ..SandboxProfile::default() });
    let job = start(&jobs, &spec).await;
    while !is_alive("626.25") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    job.stop();
    assert_eq!(job.wait_for_end().await.reason, EndReason::Stopped);
    let text = job.take_output().text;
    assert!(text.contains("x\nagent: bus:\n"), "{text}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{text}");
    wait_until_dead("626.25").await;

    // If it cannot be confined, it does not run at all.
    spec.sandbox =
        Some(SandboxProfile { writable: vec!["/proc/self".into()], ..SandboxProfile::default() });
    let error = ProcessGroup::start(&spec).await.unwrap_err().to_string();
    assert!(error.starts_with("the sandbox could not be set up: /proc/self: "), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_variable_that_names_an_open_socket_is_kept() {
    use turnwright_sandbox::SandboxProfile;
    if !turnwright_sandbox::can_confine() {
        eprintln!("NOT TESTED: no sandbox here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().canonicalize().unwrap();
    let opened = format!("unix://{}/docker.sock", top.display());
    let variables = [
        ("PATH", "/usr/bin:/bin"),
        ("DOCKER_HOST", opened.as_str()),
        ("CONTAINER_HOST", "unix:///run/podman.sock"),
        ("NVIM", &opened["unix://".len()..]),
    ]
    .map(|(name, value)| (name.into(), value.into()));
    let mut spec = spec("echo \"$DOCKER_HOST$CONTAINER_HOST$NVIM\"");
    spec.environment = Environment::scrubbed(variables, &[]);
    spec.sandbox = Some(SandboxProfile { writable: vec![top], ..SandboxProfile::default() });
    let (jobs, _outputs) = jobs();
    let job = start(&jobs, &spec).await;
    job.wait_for_end().await;
    assert_eq!(job.take_output().text.trim_end(), opened);
}
