//! Symlink races: while another thread swaps a folder for a link over and over, the file functions of the
//! tools work below the folder. They must never change anything at the target of the link.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio_util::sync::CancellationToken;
use turnwright_types::effect::{PathScope, ResolvedPath};
use turnwright_workspace::files::{FileError, Files, Roots};

const ROUNDS: usize = 2_500;

/// A workspace with a folder `d` and a link `link` to a folder outside, whose names a thread exchanges
/// all the time.
struct Race {
    base: tempfile::TempDir,
    files: Files,
    over: Arc<AtomicBool>,
    swapper: Option<JoinHandle<()>>,
}

impl Race {
    fn start() -> Race {
        // Each write is synchronized to the disk, so a file system in memory is faster.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let base = tempfile::tempdir_in(base).unwrap();
        let (ws, out) = (base.path().join("ws"), base.path().join("out"));
        fs::create_dir_all(ws.join("d")).unwrap();
        fs::create_dir_all(out.join("sub/deep")).unwrap();
        for name in ["f", "there", "sub/f", "sub/deep/f", "from-0"] {
            fs::write(out.join(name), "the work of somebody else").unwrap();
        }
        std::os::unix::fs::symlink(&out, ws.join("link")).unwrap();
        let files = Files::new(Roots::new(&ws).unwrap(), None);
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let swapper = std::thread::spawn(move || {
            let (folder, link) = (ws.join("d"), ws.join("link"));
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                // Several times within a change, and the other tests have the processor too.
                std::thread::sleep(Duration::from_micros(10));
            }
        });
        Race { base, files, over, swapper: Some(swapper) }
    }

    /// A path below the folder, as the policy has resolved it while the folder was no link.
    fn place(&self, name: &str) -> ResolvedPath {
        ResolvedPath { path: self.base.path().join("ws/d").join(name), scope: PathScope::Workspace }
    }

    /// All entries of the folder outside, with the contents of files.
    fn outside(&self) -> Vec<(PathBuf, Option<String>)> {
        let (mut all, mut pending) = (Vec::new(), vec![self.base.path().join("out")]);
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let is_folder = fs::symlink_metadata(&path).unwrap().is_dir();
                all.push((path.clone(), (!is_folder).then(|| fs::read_to_string(&path).unwrap())));
                pending.extend(is_folder.then_some(path));
            }
        }
        all.sort();
        all
    }
}

impl Drop for Race {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(self.swapper.take().map(JoinHandle::join));
    }
}

#[tokio::test]
async fn ten_thousand_changes_below_a_folder_that_becomes_a_link_never_leave_the_workspace() {
    let race = Race::start();
    let before = race.outside();
    let cancel = CancellationToken::new();
    let (mut done, mut refused) = ([0; 4], 0);
    let mut count = |which: usize, result: Result<(), FileError>| match result {
        Ok(()) => done[which] += 1,
        Err(_) => refused += 1,
    };
    for round in 0..ROUNDS {
        let file = race.place(&format!("a{}/b/f-{round}", round % 50));
        let written = race.files.write(&file, None, "ours", &cancel).await;
        count(0, written.map(drop));
        let swapped_file = race.place("f");
        let text = race.files.read(&swapped_file).await.ok();
        assert!(
            text.as_ref().is_none_or(|it| it.text == "ours"),
            "a file outside was read: {text:?}"
        );
        count(1, race.files.write(&swapped_file, text.as_ref(), "ours", &cancel).await.map(drop));
        let (from, to) = (race.place("from-0"), race.place(&format!("new-{}/to", round % 50)));
        drop(race.files.write(&from, None, "ours", &cancel).await);
        count(2, race.files.rename(&from, &to).await);
        drop(race.files.set_aside(&race.place("there")).await);
        for name in ["sub", "there", "f", "new-0"] {
            let removed = race.files.remove(&race.place(name), true, &cancel).await;
            count(3, removed.map(drop));
        }
        if round % 100 == 0 {
            assert_eq!(race.outside(), before, "in round {round}");
        }
    }
    assert_eq!(race.outside(), before);
    // Without both successes and refusals there was no race.
    assert!(done.iter().all(|it| *it > 0) && refused > 0, "{done:?} done, {refused} refused");
}
