//! stub
use std::borrow::Cow;
#[derive(Debug, Default)]
pub(super) struct Aliases;
impl Aliases {
    pub(super) fn new<'a>(_: impl IntoIterator<Item = &'a str>) -> Aliases {
        Aliases
    }
    pub(super) fn to_wire<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
        if name.is_empty() {
            return "unknown".into();
        }
        if name.len() <= 64 && name.chars().all(fits) {
            return name.into();
        }
        name.chars().take(64).map(|it| if fits(it) { it } else { '_' }).collect::<String>().into()
    }
    pub(super) fn from_wire<'a>(&'a self, name: &'a str) -> &'a str {
        name
    }
}
