//! Finds the lines of a text that are most similar to a text that it does not contain, so that the
//! model sees what it got wrong. Never used to decide what an edit means.

use std::collections::HashMap;
use std::ops::Range;

use super::line_changes::clipped;
use turnwright_types::hash::std_hash;
use turnwright_types::line_diff::{align, diff_ratio};
use turnwright_types::look_alike::{first_cluster, is_invisible, is_mark, resemblance};
use turnwright_types::text;

/// The most results.
const MAX_RESULTS: usize = 3;
/// How many candidate windows are compared in detail.
const MAX_CANDIDATES: usize = 8;
/// The most lines of a window that are shown, and compared by character.
const MAX_LINES: usize = 12;
/// The most bytes of a line that are compared.
const MAX_LINE_BYTES: usize = 200;
/// The most bytes of the searched text that are used.
const MAX_BYTES: usize = 64 * 1024;
/// The least similarity, in percent, that is worth showing.
const MIN_PERCENT: u8 = 45;
/// How many characters are shown before and after the first difference.
const CONTEXT_CHARS: usize = 50;

/// A range of similar lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimilarLines {
    /// The lines, counted from 0.
    pub lines: Range<usize>,
    pub percent: u8,
    /// The lines with their numbers, as many as are shown.
    pub excerpt: String,
    /// A sentence that shows the first line that differs, with white space made visible.
    pub difference: Option<String>,
}

/// The ranges of lines of `text` that are most similar to `old`, the best first.
pub(crate) fn closest_lines(text: &str, old: &str) -> Vec<SimilarLines> {
    let old: Vec<&str> = text::prefix(old, MAX_BYTES).lines().collect();
    let text: Vec<&str> = text.lines().collect();
    if old.is_empty() || text.is_empty() {
        return Vec::new();
    }
    let size = old.len().min(text.len());
    let mut near: Vec<_> = candidate_windows(&text, &old, size)
        .into_iter()
        .map(|start| (similarity(&text[start..start + size], &old), start))
        .filter(|(percent, _)| *percent >= MIN_PERCENT)
        .collect();
    near.sort_by_key(|(percent, start)| (u8::MAX - percent, *start));
    near.truncate(MAX_RESULTS);
    near.into_iter()
        .map(|(percent, start)| show(&text, &old, start..start + size, percent))
        .collect()
}

/// The start lines of the windows that share most words with `old`, weighted by how rare a word is.
/// Takes one pass over the text.
fn candidate_windows(text: &[&str], old: &[&str], size: usize) -> Vec<usize> {
    let mut counts: HashMap<u64, u32> =
        old.iter().flat_map(|line| words(line)).map(|word| (word, 0)).collect();
    for word in text.iter().flat_map(|line| words(line)) {
        if let Some(count) = counts.get_mut(&word) {
            *count = count.saturating_add(1);
        }
    }
    let scores = text.iter().map(|line| {
        let shared = words(line).filter_map(|word| counts.get(&word));
        shared.map(|count| 1.0 / f64::from(*count).sqrt()).sum::<f64>()
    });
    best_windows(&scores.collect::<Vec<_>>(), size)
}

fn best_windows(scores: &[f64], size: usize) -> Vec<usize> {
    let mut sum: f64 = scores[..size].iter().sum();
    let mut best = vec![(sum, 0)];
    for start in 1..=scores.len() - size {
        sum += scores[start + size - 1] - scores[start - 1];
        let (lowest, _) = best.last().copied().unwrap_or_default();
        if best.len() == MAX_CANDIDATES && sum <= lowest {
            continue;
        }
        // Of windows that overlap by half or more only the best is kept.
        let half = size.div_ceil(2);
        match best.iter().position(|(_, other)| start - other < half) {
            Some(at) if best[at].0 >= sum => continue,
            Some(at) => {
                best.remove(at);
            }
            None => {}
        }
        let at = best.partition_point(|(other, _)| *other >= sum);
        best.insert(at, (sum, start));
        best.truncate(MAX_CANDIDATES);
    }
    best.into_iter().filter(|(sum, _)| *sum > 1e-6).map(|(_, start)| start).collect()
}

/// The hashes of the words of a line, and of the trimmed line itself, so that lines of only
/// punctuation count, too.
fn words(line: &str) -> impl Iterator<Item = u64> {
    let line = text::prefix(line, MAX_LINE_BYTES).trim();
    let parts = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words = parts.filter(move |part| part.len() < line.len());
    std::iter::once(line).chain(words).filter(|word| !word.is_empty()).map(std_hash)
}

/// The similarity of two ranges of lines, in percent.
fn similarity(in_file: &[&str], old: &[&str]) -> u8 {
    if old.len() > MAX_LINES {
        let by_lines = percent(same_lines(in_file, old));
        if by_lines >= MIN_PERCENT {
            return by_lines;
        }
    }
    // If hardly any line is equal, the first few show whether all lines are nearly equal.
    percent(same_characters(in_file, old))
}

fn same_characters(in_file: &[&str], old: &[&str]) -> f64 {
    let in_file = first_lines(in_file);
    let old = first_lines(old);
    let ops = align(in_file.chars(), old.chars(), None);
    diff_ratio(&ops, in_file.chars().count(), old.chars().count()).into()
}

fn first_lines(text: &[&str]) -> String {
    let lines = text.iter().take(MAX_LINES).map(|line| text::prefix(line, MAX_LINE_BYTES));
    lines.collect::<Vec<_>>().join("\n")
}

fn same_lines(in_file: &[&str], old: &[&str]) -> f64 {
    let in_file = &in_file[..in_file.len().min(1_000)];
    let old = &old[..old.len().min(1_000)];
    let ops =
        align(in_file.iter().map(|line| line.trim()), old.iter().map(|line| line.trim()), None);
    diff_ratio(&ops, in_file.len(), old.len()).into()
}

/// Converts a ratio to percent. Never returns 100, because the texts are not equal.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
fn percent(ratio: f64) -> u8 {
    (ratio * 100.0).clamp(0.0, 99.0) as u8
}

fn show(text: &[&str], old: &[&str], lines: Range<usize>, percent: u8) -> SimilarLines {
    let mut excerpt = String::new();
    for number in lines.clone().take(MAX_LINES) {
        excerpt.push_str(&format!("{:>5}| {}\n", number + 1, clipped(text[number])));
    }
    let first = lines.clone().find(|line| text[*line] != old[line - lines.start]);
    let difference = first.map(|line| {
        let in_file = text[line];
        let sent = old[line - lines.start];
        let same = in_file.chars().zip(sent.chars()).take_while(|(a, b)| a == b).count();
        let marks = looks_equal_at(in_file, sent, same);
        let [in_file, sent] = [in_file, sent].map(|side| make_visible(side, same, marks));
        let number = line + 1;
        format!("First difference, line {number}: file has \"{in_file}\" you sent \"{sent}\".")
    });
    SimilarLines { lines, percent, excerpt, difference }
}

/// True if the first difference of two lines may not be seen: the same character in another form, or a letter
/// that looks like an ASCII one.
fn looks_equal_at(one: &str, other: &str, place: usize) -> bool {
    let [one, other] =
        [one, other].map(|line| first_cluster(&line[text::first_chars(line, place).len()..]));
    resemblance(one, other).is_some() || one.is_ascii() != other.is_ascii()
}

/// The part of a line around `place`, with white space made visible where it matters. With `marks` the
/// character at the place is written as its code points, unless it is ASCII.
fn make_visible(line: &str, place: usize, marks: bool) -> String {
    let body = line.trim();
    let head = line.chars().count() - line.trim_start().chars().count();
    let tail = head + body.chars().count();
    let start = place.saturating_sub(CONTEXT_CHARS);
    let from = if start < 10 { 0 } else { start };
    let mut text = String::new();
    if from > 0 {
        text.push('…');
    }
    for (at, char) in line.chars().enumerate().skip(from) {
        if at > place + CONTEXT_CHARS {
            text.push('…');
            break;
        }
        let is_outside = at < head || at >= tail;
        let is_marked = marks && (at == place || at > place && is_mark(char)) && !char.is_ascii();
        match char {
            ' ' if is_outside => text.push('·'),
            '\t' => text.push('→'),
            ' ' => text.push(' '),
            hidden
                if is_marked
                    || hidden.is_whitespace()
                    || hidden.is_control()
                    || is_invisible(hidden) =>
            {
                text.push_str(&format!("\\u{{{:x}}}", u32::from(hidden)));
            }
            other => text.push(other),
        }
    }
    text
}
