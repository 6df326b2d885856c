//! What in a text is most like something that is not in it: for the model to see what it got wrong.
//! Never for deciding what is meant.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use super::align::align;
use super::spots::clipped;

/// The most windows that are named.
const MOST_NAMED: usize = 3;
/// Windows that are compared in earnest.
const MOST_COMPARED: usize = 8;
/// Lines of a window that are shown, and compared character by character.
const MOST_LINES: usize = 12;
/// Bytes of a line that are compared.
const LONGEST_LINE: usize = 200;
/// Bytes of what is looked for that count.
const MOST_BYTES: usize = 64 * 1024;
/// Less similar than this, in per cent, is not worth showing.
const LEAST: u8 = 45;
/// Characters that are shown before and after the first difference.
const AROUND: usize = 50;

/// Lines that are similar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// Counted from 0.
    pub lines: Range<usize>,
    /// How similar, in per cent.
    pub percent: u8,
    /// The lines with their numbers, as far as there is room.
    pub excerpt: String,
    /// The first pair of lines that differ.
    pub difference: Option<Difference>,
}

/// Two lines that should have been the same, with visible white space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which line of the file, counted from 0.
    pub line: usize,
    /// What stands there.
    pub there: String,
    /// What was looked for.
    pub sent: String,
}

/// The lines of `text` that are most like `old`, the best first.
pub fn closest(text: &str, old: &str) -> Vec<Near> {
    let old: Vec<&str> = old.get(..floor(old, MOST_BYTES)).unwrap_or(old).lines().collect();
    let text: Vec<&str> = text.lines().collect();
    if old.is_empty() || text.is_empty() {
        return Vec::new();
    }
    let size = old.len().min(text.len());
    let mut near: Vec<_> = promising(&text, &old, size)
        .into_iter()
        .map(|start| (likeness(&text[start..start + size], &old), start))
        .filter(|(percent, _)| *percent >= LEAST)
        .collect();
    near.sort_by_key(|(percent, start)| (u8::MAX - percent, *start));
    near.truncate(MOST_NAMED);
    near.into_iter()
        .map(|(percent, start)| show(&text, &old, start..start + size, percent))
        .collect()
}

/// Where windows begin that have most words in common with what is looked for, weighed by how rare
/// a word is. One pass over the text.
fn promising(text: &[&str], old: &[&str], size: usize) -> Vec<usize> {
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for line in old {
        words(line, |word| {
            counts.insert(word, 0);
        });
    }
    for line in text {
        words(line, |word| {
            if let Some(count) = counts.get_mut(&word) {
                *count = count.saturating_add(1);
            }
        });
    }
    let mut scores = vec![0.0; text.len()];
    for (score, line) in scores.iter_mut().zip(text) {
        words(line, |word| {
            let count = counts.get(&word).copied().unwrap_or(0);
            if count > 0 {
                *score += 1.0 / f64::from(count).sqrt();
            }
        });
    }
    best_windows(&scores, size)
}

fn best_windows(scores: &[f64], size: usize) -> Vec<usize> {
    let mut sum: f64 = scores[..size].iter().sum();
    let mut best = vec![(sum, 0)];
    for start in 1..=scores.len() - size {
        sum += scores[start + size - 1] - scores[start - 1];
        let (lowest, _) = best.last().copied().unwrap_or_default();
        if best.len() == MOST_COMPARED && sum <= lowest {
            continue;
        }
        // Of windows that overlap by half only the best counts.
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
        best.truncate(MOST_COMPARED);
    }
    best.into_iter().filter(|(sum, _)| *sum > 1e-6).map(|(_, start)| start).collect()
}

/// Calls `hear` with the hash of each word of a line, and of the line itself without its
/// indentation, so that lines of nothing but signs count, too.
fn words(line: &str, mut hear: impl FnMut(u64)) {
    let line = line[..floor(line, LONGEST_LINE)].trim();
    if line.is_empty() {
        return;
    }
    hear(hash(line));
    for word in line.split(|it: char| !it.is_alphanumeric() && it != '_') {
        if !word.is_empty() && word.len() < line.len() {
            hear(hash(word));
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// How much of both is the same, in per cent.
fn likeness(there: &[&str], old: &[&str]) -> u8 {
    if old.len() > MOST_LINES {
        let by_lines = percent(same_lines(there, old));
        if by_lines >= LEAST {
            return by_lines;
        }
    }
    // Where hardly a line is the same, the first few say whether all are nearly so.
    percent(same_characters(there, old))
}

fn same_characters(there: &[&str], old: &[&str]) -> f64 {
    let join = |it: &[&str]| {
        let lines = it.iter().take(MOST_LINES).map(|it| &it[..floor(it, LONGEST_LINE)]);
        lines.collect::<Vec<_>>().join("\n")
    };
    let (there, old) = (join(there), join(old));
    let ops = align(there.chars(), old.chars(), None);
    similar::diff_ratio(&ops, there.chars().count(), old.chars().count()).into()
}

fn same_lines(there: &[&str], old: &[&str]) -> f64 {
    let (there, old) = (&there[..there.len().min(1_000)], &old[..old.len().min(1_000)]);
    let ops = align(there.iter().map(|it| it.trim()), old.iter().map(|it| it.trim()), None);
    similar::diff_ratio(&ops, there.len(), old.len()).into()
}

/// What is not the same is never called that.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
fn percent(ratio: f64) -> u8 {
    (ratio * 100.0).clamp(0.0, 99.0) as u8
}

fn show(text: &[&str], old: &[&str], lines: Range<usize>, percent: u8) -> Near {
    let mut excerpt = String::new();
    for number in lines.clone().take(MOST_LINES) {
        excerpt.push_str(&format!("{:>5}| {}\n", number + 1, clipped(text[number])));
    }
    let differs = |number: &usize| text[*number] != old[number - lines.start];
    let difference = lines.clone().find(differs).map(|line| {
        let (there, sent) = (text[line], old[line - lines.start]);
        let same = there.chars().zip(sent.chars()).take_while(|(a, b)| a == b).count();
        Difference { line, there: marked(there, same), sent: marked(sent, same) }
    });
    Near { lines, percent, excerpt, difference }
}

/// A line with its white space made visible where it matters, and only the part around a place.
fn marked(line: &str, place: usize) -> String {
    let body = line.trim();
    let head = line.chars().count() - line.trim_start().chars().count();
    let tail = head + body.chars().count();
    let from = place.saturating_sub(AROUND);
    let from = if from < 10 { 0 } else { from };
    let mut text = String::new();
    if from > 0 {
        text.push('…');
    }
    for (at, char) in line.chars().enumerate().skip(from) {
        if at > place + AROUND {
            text.push('…');
            break;
        }
        let is_outside = at < head || at >= tail;
        match char {
            ' ' if is_outside => text.push('·'),
            '\t' => text.push('→'),
            ' ' => text.push(' '),
            hidden if hidden.is_whitespace() || hidden.is_control() => {
                text.push_str(&format!("\\u{{{:x}}}", u32::from(hidden)));
            }
            other => text.push(other),
        }
    }
    text
}

/// The last place up to `most` where a character begins.
fn floor(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0)
}
