//! Lists that hold nothing twice.

/// Adds an item to a list, unless it is there.
pub fn add_new<T: PartialEq>(all: &mut Vec<T>, new: T) {
    if !all.contains(&new) {
        all.push(new);
    }
}
