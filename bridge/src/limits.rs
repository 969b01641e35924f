//! Bounds that the template engine itself does not keep. It counts instructions and bytes, but values are shared: a few
//! hundred steps can nest lists a thousand deep or build one whose text would be larger than memory. Whatever is kept
//! in a namespace or printed is therefore walked once, paid for, and refused when it is too deep or too large.
//! What stays possible: source text alone, without a namespace, can share one list so often that a single comparison
//! takes very long. It cannot crash.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// The filter that rewritten `{% set namespace.name = ... %}` tags use.
pub(crate) const KEEP_FILTER: &str = "iv_keep";

/// Deeper than any JSON that a context may hold.
const MAX_DEPTH: usize = 192;
/// Values walked for one unit of fuel.
const VALUES_PER_FUEL: u64 = 4;
/// A conversation has some thousands.
const MAX_VALUES: u64 = 1_000_000;
/// Bytes of text read for one unit of fuel.
const BYTES_PER_FUEL: u64 = 256;

pub(crate) fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
}

/// Pays for reading the whole value.
pub(crate) fn charge(state: &State, value: &Value) -> Result<(), Error> {
    Walk { state, seen: 0, keep: false }.value(value, 0)
}

/// The value, if a namespace may keep it. A namespace inside a namespace could hold itself.
pub(crate) fn keep(state: &State, value: &Value) -> Result<Value, Error> {
    Walk { state, seen: 0, keep: true }.value(value, 0)?;
    Ok(value.clone())
}

struct Walk<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    seen: u64,
    keep: bool,
}

impl Walk<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.seen += 1;
        if self.seen > MAX_VALUES {
            return Err(Error::new(ErrorKind::InvalidOperation, "value too large"));
        }
        if self.seen % VALUES_PER_FUEL == 0 {
            self.state.consume_fuel(1)?;
        }
        if let Some(text) = value.as_str() {
            return self.state.consume_fuel(text.len() as u64 / BYTES_PER_FUEL);
        }
        if !is_container(value) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "value nested too deeply"));
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
