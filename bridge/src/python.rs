//! What templates expect from Python: `json.dumps`, the text of floats, HTML entities.

use crate::limits;
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State};

/// Bytes of JSON that cost one unit of fuel; each value costs one more.
const BYTES_PER_FUEL: u64 = 64;
const MAX_DEPTH: usize = 192;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`: json.dumps with those arguments.
pub(crate) fn tojson(state: &State, value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let rest = rest.into_values();
    let mut positional: &[Value] = &rest;
    let mut named = None;
    if let Some((last, others)) = positional.split_last().filter(|(last, _)| last.is_kwargs()) {
        named = Some(Kwargs::try_from(last.clone())?);
        positional = others;
    }
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if positional.len() > NAMES.len() {
        return Err(Error::new(ErrorKind::TooManyArguments, "tojson takes four arguments at most"));
    }
    let mut arguments: [Option<Value>; 4] = std::array::from_fn(|i| positional.get(i).cloned());
    if let Some(named) = named {
        for (argument, name) in arguments.iter_mut().zip(NAMES) {
            if let Some(value) = named.get::<Option<Value>>(name)? {
                *argument = Some(value);
            }
        }
        named.assert_all_used()?;
    }
    let [ascii, indent, separators, sort_keys] = arguments.map(|a| a.filter(|v| !v.is_none() && !v.is_undefined()));
    let indent = match indent {
        None => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(i64::try_from(value)?.clamp(0, 64)).unwrap_or(0)),
        }),
    };
    let (item, key) = match separators {
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
        Some(pair) => {
            let parts: Vec<Value> = pair.try_iter()?.collect();
            match parts.as_slice() {
                [item, key] if item.as_str().is_some() && key.as_str().is_some() => (item.to_string(), key.to_string()),
                _ => return Err(invalid("tojson: separators must be two strings")),
            }
        }
    };
    let mut writer = JsonWriter {
        state,
        ascii: ascii.is_some_and(|v| v.is_true()),
        sort: sort_keys.is_some_and(|v| v.is_true()),
        indent,
        item,
        key,
        out: String::new(),
        charged: 0,
    };
    writer.write(value, 0)?;
    Ok(Value::from(writer.out))
}

struct JsonWriter<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    ascii: bool,
    sort: bool,
    indent: Option<String>,
    item: String,
    key: String,
    out: String,
    charged: usize,
}

impl JsonWriter<'_, '_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: nesting too deep"));
        }
        // Paid as it grows, so that a value that is shared many times cannot blow up before the bill.
        let grown = self.out.len() - self.charged;
        self.charged = self.out.len();
        self.state.consume_fuel(1 + grown as u64 / BYTES_PER_FUEL)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)?),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.group('[', ']', items.len(), depth, |writer, i| writer.write(&items[i], depth + 1))?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    let member = value.get_item(&key)?;
                    entries.push((key_text(&key)?, member));
                }
                if self.sort {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.group('{', '}', entries.len(), depth, |writer, i| {
                    writer.write_string(&entries[i].0)?;
                    writer.make_room(writer.key.len())?;
                    writer.out.push_str(&writer.key);
                    writer.write(&entries[i].1, depth + 1)
                })?;
            }
            kind => return Err(invalid(format!("tojson: a value of type {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn group(
        &mut self,
        open: char,
        close: char,
        count: usize,
        depth: usize,
        mut write_item: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for i in 0..count {
            if i > 0 {
                self.make_room(self.item.len())?;
                self.out.push_str(&self.item);
            }
            self.new_line(depth + 1)?;
            write_item(self, i)?;
        }
        if count > 0 {
            self.new_line(depth)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            self.make_room(1 + depth.saturating_mul(indent.len()))?;
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
        Ok(())
    }

    fn write_string(&mut self, text: &str) -> Result<(), Error> {
        self.make_room(text.chars().map(|c| json_bytes(c, self.ascii)).sum())?;
        write_string(text, self.ascii, &mut self.out);
        Ok(())
    }

    fn make_room(&self, bytes: usize) -> Result<(), Error> {
        if self.out.len().saturating_add(bytes) > limits::MAX_TEXT_BYTES {
            return Err(limits::too_much(format!("tojson: more than {} bytes", limits::MAX_TEXT_BYTES)));
        }
        Ok(())
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let float = f64::try_from(value.clone())?;
    Ok(if float.is_nan() {
        "NaN".into()
    } else if float.is_infinite() {
        if float > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        }
    } else {
        float_text(float)
    })
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => number(key),
        kind => Err(invalid(format!("tojson: a key of type {kind} is not JSON serializable"))),
    }
}

/// repr(float): the shortest digits that read back the same; an exponent below 1e-4 and from 1e16 on.
pub(crate) fn float_text(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

/// str(value) where the engine's own text of it differs: floats.
pub(crate) fn text(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    let float = f64::try_from(value.clone()).ok()?;
    float.is_finite().then(|| float_text(float))
}

/// The filter `string`.
pub(crate) fn string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value.clone());
    }
    limits::allow(state, "string", limits::text_bytes(state, value)?)?;
    Ok(Value::from(text(value).unwrap_or_else(|| value.to_string())))
}

/// The filters `e` and `escape`, with the entities that Jinja writes.
pub(crate) fn escape(state: &State, value: &Value) -> Result<String, Error> {
    let text = string(state, value)?.to_string();
    const MOST: usize = "&quot;".len();
    limits::allow(state, "escape", (MOST * text.len()) as u64)?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// At most, what write_string makes of a character.
fn json_bytes(c: char, ascii: bool) -> usize {
    match c {
        c if c < ' ' || (ascii && c > '~') => 6 * c.len_utf16(),
        '"' | '\\' => 2,
        c => c.len_utf8(),
    }
}

fn write_string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ascii && c > '~') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
