//! Makes the messages of two runs comparable: what differs between any two runs gets the same placeholder.

use serde_json::Value;

/// The folders of one run's own files, with the placeholders that stand for them.
#[derive(Clone, Debug, Default)]
pub(super) struct RunNormalizer(Vec<(String, &'static str)>);

impl RunNormalizer {
    pub(super) fn new(config: &str, state: &str) -> RunNormalizer {
        let folders = [(config.to_owned(), "<config>"), (state.to_owned(), "<state>")];
        RunNormalizer(folders.into_iter().filter(|folder| !folder.0.is_empty()).collect())
    }

    /// Replaces identifiers, times and the folders in all strings of the value.
    pub(super) fn normalize(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                for (folder, placeholder) in &self.0 {
                    if text.contains(folder.as_str()) {
                        *text = text.replace(folder.as_str(), placeholder);
                    }
                }
                *text = mask_ids_and_times(text);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.normalize(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.normalize(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The shapes of identifiers and times: `x` is a hexadecimal digit, `0` a decimal one.
const SHAPES: [(&str, &str); 2] =
    [("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "<id>"), ("0000-00-00T00:00:00", "<time>")];

fn mask_ids_and_times(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    'text: while let Some(first) = rest.chars().next() {
        for (shape, placeholder) in SHAPES {
            if let Some(found) = rest.get(..shape.len()).filter(|start| has_shape(start, shape)) {
                clean.push_str(placeholder);
                rest = &rest[found.len()..];
                if placeholder == "<time>" {
                    // Fractions of a second, and the zone.
                    rest = rest.trim_start_matches(|letter: char| {
                        letter == '.' || letter.is_ascii_digit()
                    });
                    rest = rest.strip_prefix('Z').unwrap_or(rest);
                }
                continue 'text;
            }
        }
        clean.push(first);
        rest = &rest[first.len_utf8()..];
    }
    clean
}

fn has_shape(text: &str, shape: &str) -> bool {
    text.chars().zip(shape.chars()).all(|(found, wanted)| match wanted {
        'x' => found.is_ascii_hexdigit(),
        '0' => found.is_ascii_digit(),
        same => found == same,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identifiers_times_and_folders_get_placeholders() {
        let folders = RunNormalizer::new("/home/a/.config/turnwright", "/home/a/.state");
        let mut value = json!({
            "id": "0a1b2c3d-0000-4000-8000-0123456789ab",
            "at": ["2026-01-02T03:04:05.678Z, 2026-01-02T03:04:05"],
            "path": "see /home/a/.state/x and é 2026-01-02",
            "n": 1,
        });
        folders.normalize(&mut value);
        let expected = json!({
            "id": "<id>",
            "at": ["<time>, <time>"],
            "path": "see <state>/x and é 2026-01-02",
            "n": 1,
        });
        assert_eq!(value, expected);
    }
}
