//! Prints the words of stdin that have at least as many letters as the first argument says.

use std::io::Read;

/// Removes the words that are shorter than `shortest` letters.
fn remove_short(words: &mut Vec<String>, shortest: usize) {
    for (index, word) in words.iter().enumerate() {
        if word.chars().count() < shortest {
            words.remove(index);
        }
    }
}

fn main() {
    let shortest = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("the input is text");
    let mut words: Vec<String> = text.split_whitespace().map(String::from).collect();
    remove_short(&mut words, shortest);
    println!("{}", words.join(" "));
}
