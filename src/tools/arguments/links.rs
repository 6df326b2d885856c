//! Paths that a model gives as links, because it was given links or has seen them.

use serde_json::{Map, Value};

use turnwright_types::file_link::FileLink;

/// The arguments that name files, as models spell them.
const PATH_NAMES: [&str; 9] =
    ["path", "paths", "file_path", "filePath", "file", "from", "to", "source", "destination"];
/// The arguments that choose lines.
const RANGE_NAMES: [&str; 4] = ["start_line", "end_line", "offset", "limit"];

/// The paths among the arguments that are links.
pub(in crate::tools) fn linked_paths(args: &Value) -> Vec<String> {
    let values = PATH_NAMES.iter().filter_map(|it| args.get(it));
    let texts = values.flat_map(|it| match it {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    });
    let links = texts.filter_map(Value::as_str).filter(|it| FileLink::from_argument(it).is_some());
    links.map(str::to_owned).collect()
}

/// Replaces links by the paths that they mean. The lines of a link become the range of a tool that
/// takes one, unless the model has chosen a range.
pub(in crate::tools) fn follow_links(args: &mut Value, takes_range: bool) {
    let Value::Object(fields) = args else { return };
    for name in PATH_NAMES {
        match fields.get_mut(name) {
            Some(Value::Array(items)) => items.iter_mut().for_each(|it| drop(follow(it))),
            Some(value) => {
                let lines = follow(value).and_then(|it| it.lines);
                if let Some(lines) = lines.filter(|_| takes_range) {
                    add_range(fields, lines);
                }
            }
            None => {}
        }
    }
}

fn follow(value: &mut Value) -> Option<FileLink> {
    let link = FileLink::from_argument(value.as_str()?)?;
    *value = Value::String(link.path.clone());
    Some(link)
}

fn add_range(fields: &mut Map<String, Value>, (first, last): (u32, u32)) {
    if !RANGE_NAMES.iter().any(|it| fields.contains_key(*it)) {
        fields.insert("start_line".to_owned(), first.into());
        fields.insert("end_line".to_owned(), last.into());
    }
}
