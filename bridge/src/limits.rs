//! Bounds that the template engine itself does not keep. It counts instructions and bytes, but some of its functions build
//! a text first and count then, and values are shared: a few hundred steps can nest lists a thousand deep or build one
//! whose text would be larger than memory. Whatever is kept in a namespace, printed or made a text of is therefore walked
//! once, paid for, and refused when it is too deep or too large.
//! What stays possible: source text alone, without a namespace, can share one list so often that a single comparison
//! takes very long. It cannot crash.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// The filter that rewritten `{% set namespace.name = ... %}` tags use.
pub(crate) const KEEP_FILTER: &str = "iv_keep";
/// The filter that stands behind the operands of rewritten `~` and before `in`: the engine makes texts of them.
pub(crate) const TEXT_FILTER: &str = "iv_text";

/// Of the output, and of each text on the way to it.
pub(crate) const MAX_TEXT_BYTES: usize = 32 << 20;
/// Deeper than any JSON that a context may hold.
const MAX_DEPTH: usize = 192;
/// Values walked for one unit of fuel.
const VALUES_PER_FUEL: u64 = 4;
/// A conversation has some thousands.
pub(crate) const MAX_VALUES: u64 = 1_000_000;
/// Bytes of text read for one unit of fuel.
const BYTES_PER_FUEL: u64 = 256;
/// Inside a list or dict a string is quoted; its characters may become escapes.
const BYTES_PER_QUOTED_BYTE: u64 = 5;
/// Any number, with what stands around it; a pretty printer also indents it.
const BYTES_PER_VALUE: u64 = 40;
const INDENT: u64 = 4;

/// Behind every error of this module.
#[derive(Debug)]
pub(crate) struct TooMuch;
impl std::fmt::Display for TooMuch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("limit")
    }
}
impl std::error::Error for TooMuch {}

pub(crate) fn too_much(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into()).with_source(TooMuch)
}

pub(crate) fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
}

/// Pays for reading the whole value.
pub(crate) fn charge(state: &State, value: &Value) -> Result<(), Error> {
    text_bytes(state, value).map(|_| ())
}

/// Pays for reading the whole value; the bytes that its text has at most.
pub(crate) fn text_bytes(state: &State, value: &Value) -> Result<u64, Error> {
    let mut walk = Walk { state, seen: 0, bytes: 0, keep: false };
    walk.value(value, 0)?;
    Ok(walk.bytes)
}

/// The value, if a namespace may keep it. A namespace inside a namespace could hold itself.
pub(crate) fn keep(state: &State, value: &Value) -> Result<Value, Error> {
    Walk { state, seen: 0, bytes: 0, keep: true }.value(value, 0)?;
    Ok(value.clone())
}

/// The value, if its text is not too large.
pub(crate) fn with_text(state: &State, value: &Value) -> Result<Value, Error> {
    if is_container(value) {
        allow(state, "text of a list or dict", text_bytes(state, value)?)?;
    }
    Ok(value.clone())
}

/// Refuses a text before it is made. The engine counts it once it exists; this pays for the time until then.
pub(crate) fn allow(state: &State, what: &str, bytes: u64) -> Result<(), Error> {
    if bytes > MAX_TEXT_BYTES as u64 {
        return Err(too_much(format!("{what}: up to {bytes} bytes, the limit is {MAX_TEXT_BYTES}")));
    }
    state.consume_fuel(bytes / BYTES_PER_FUEL)
}

/// The same for a list.
pub(crate) fn allow_values(state: &State, what: &str, count: u64, most: u64) -> Result<(), Error> {
    if count > most {
        return Err(too_much(format!("{what}: more than {most} values")));
    }
    state.consume_fuel(count / VALUES_PER_FUEL)
}

struct Walk<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    seen: u64,
    bytes: u64,
    keep: bool,
}

impl Walk<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.seen += 1;
        if self.seen > MAX_VALUES {
            return Err(too_much("value too large"));
        }
        if self.seen % VALUES_PER_FUEL == 0 {
            self.state.consume_fuel(1)?;
        }
        if let Some(text) = value.as_str() {
            let bytes = text.len() as u64;
            self.bytes += if depth == 0 { bytes } else { BYTES_PER_QUOTED_BYTE * bytes + BYTES_PER_VALUE };
            return self.state.consume_fuel(bytes / BYTES_PER_FUEL);
        }
        self.bytes += BYTES_PER_VALUE + INDENT * depth as u64;
        if !is_container(value) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(too_much("value nested too deeply"));
        }
        if self.keep && value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace")) {
            return Err(Error::new(ErrorKind::InvalidOperation, "a namespace cannot be kept in a namespace"));
        }
        let is_map = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            self.value(&item, depth + 1)?;
            if is_map {
                self.value(&value.get_item(&item)?, depth + 1)?;
            }
        }
        Ok(())
    }
}
