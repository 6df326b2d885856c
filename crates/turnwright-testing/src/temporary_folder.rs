//! Makes the temporary folders of tests, with names in which no test finds a word of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

/// Six letters that no word of a test consists of.
const LETTERS: [char; 6] = ['J', 'K', 'Q', 'V', 'W', 'X'];

/// Makes a folder that is deleted when the value is dropped.
///
/// Its name is part of what the model is told, of results and of messages. A name of random letters would
/// contain a short word such as `go` now and then, and a test that looks for that word would find it there.
///
/// # Panics
///
/// Panics if the folder cannot be made.
pub fn temporary_folder() -> TempDir {
    static MADE: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!(".tmp{}{}", in_letters(std::process::id(), 9), in_letters(number, 6));
        match tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir() {
            // A process that had the same number was killed and has left its folders behind.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.unwrap(),
        }
    }
}

/// Returns the number as this many letters. Different numbers below 6 to the power of the width differ.
fn in_letters(mut number: u32, width: usize) -> String {
    let mut text = String::new();
    for _ in 0..width {
        text.push(LETTERS[number as usize % LETTERS.len()]);
        number /= 6;
    }
    text
}
