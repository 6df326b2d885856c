//! Looking for files and for what is in them: below one folder, by the project's ignore rules, in
//! an order that does not change. Takes absolute paths and plain options; knows nothing of tools.
//! Everything here may take its time and belongs on a blocking thread.

mod content;
mod glob;
mod lines;
mod names;
mod pattern;
mod rules;
mod tree;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use content::{FileLines, Found, Query, grep};
pub use glob::Glob;
pub use lines::Line;
pub use names::{Names, Order, Wanted, find};
pub use rules::are_odd;
pub use tree::{Branch, Sort, Tree, list};
pub use walk::each;

/// What a search gets before it is ended with what it has found.
pub const LIMIT: Duration = Duration::from_secs(10);

/// What a look at files that were left out gets.
const SECOND_LOOK: Duration = Duration::from_millis(200);

/// Where to look.
#[derive(Clone, Debug)]
pub struct Scope {
    /// A folder or a file; absolute, with no links in it.
    pub root: PathBuf,
    /// The folder that globs may also start from; absolute, with no links in it.
    pub base: PathBuf,
    /// What is passed by.
    pub except: Except,
    /// Whether hidden and ignored files count.
    pub hidden: bool,
    /// Which files count.
    pub glob: Option<Glob>,
}

impl Scope {
    /// Everything below a folder that is neither hidden nor ignored.
    pub fn of(root: &Path) -> Scope {
        let (root, base) = (root.to_path_buf(), root.to_path_buf());
        Scope { root, base, except: Except::default(), hidden: false, glob: None }
    }

    fn wants(&self, path: &Path) -> bool {
        let Some(glob) = &self.glob else { return true };
        // Most globs are about names, and taking paths apart is what costs.
        if glob.is_about_names() {
            return glob.fits_name(path);
        }
        let below = |folder: &Path| path.strip_prefix(folder).is_ok_and(|it| glob.fits(it));
        path == self.root && glob.fits_name(path)
            || below(&self.root)
            || self.root != self.base && below(&self.base)
    }
}

/// Says which files and folders a search passes by, whatever else counts.
#[derive(Clone)]
pub struct Except(Arc<Closes>);

type Closes = dyn Fn(&Path) -> bool + Send + Sync;

impl Except {
    /// Those of which this is true. It is asked for every entry, by several threads.
    pub fn new(closes: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Except {
        Except(Arc::new(closes))
    }

    fn holds(&self, path: &Path) -> bool {
        (self.0)(path)
    }
}

impl Default for Except {
    fn default() -> Except {
        Except::new(|_| false)
    }
}

impl fmt::Debug for Except {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Except")
    }
}

/// When to end before the end.
#[derive(Debug)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    deadline: Instant,
    has_cut: AtomicBool,
}

impl Stop {
    /// Ends when the flag is set, or when the time is over.
    pub fn new(cancelled: Arc<AtomicBool>, limit: Duration) -> Stop {
        Stop { cancelled, deadline: Instant::now() + limit, has_cut: AtomicBool::new(false) }
    }

    /// The same flag, with time for a short look.
    fn soon(&self) -> Stop {
        Stop::new(Arc::clone(&self.cancelled), SECOND_LOOK)
    }

    fn is_over(&self) -> bool {
        let is_over = self.has_cut.load(Ordering::Relaxed)
            || self.cancelled.load(Ordering::Relaxed)
            || Instant::now() >= self.deadline;
        if is_over {
            self.has_cut.store(true, Ordering::Relaxed);
        }
        is_over
    }

    /// There is more than is worth looking at.
    pub fn end(&self) {
        self.has_cut.store(true, Ordering::Relaxed);
    }

    /// Whether it has ended before the end.
    pub fn has_cut(&self) -> bool {
        self.has_cut.load(Ordering::Relaxed)
    }
}

/// What a search for nothing would have found among hidden and ignored files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// How many files.
    pub files: usize,
    /// Whether there was no time to look at all of them.
    pub is_part: bool,
}
