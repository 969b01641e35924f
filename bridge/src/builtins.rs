//! Filters, tests and methods of the engine whose result can be far larger than what they are given: its size is found
//! out first, and refused or paid for.

use crate::limits;
use minijinja::value::{from_args, Kwargs, Rest, StringInput, Value, ValueKind, ValueOrKwargs};
use minijinja::{filters, tests, Environment, Error, ErrorKind, State};
use minijinja_contrib::filters as more_filters;

/// Case rules of Unicode make a text three times as long at most.
const CASE_GROWTH: u64 = 3;
/// A character of a width: fill characters have up to four bytes.
const BYTES_PER_COLUMN: u64 = 4;
/// A tuple of two values, which the engine does not count, is several times as large as a value.
const MAX_PAIRS: u64 = 100_000;

pub(crate) fn add_to(environment: &mut Environment) {
    add(environment, "upper", Value::from_function(filters::upper), changed_case);
    add(environment, "lower", Value::from_function(filters::lower), changed_case);
    add(environment, "title", Value::from_function(filters::title), changed_case);
    add(environment, "capitalize", Value::from_function(filters::capitalize), changed_case);
    add(environment, "trim", Value::from_function(filters::trim), texts);
    add(environment, "safe", Value::from_function(filters::safe), texts);
    add(environment, "pprint", Value::from_function(filters::pprint), texts);
    add(environment, "join", Value::from_function(filters::join), |state, name, arguments| {
        joined(state, name, arguments.first(), named(arguments, 1, "d").as_ref())
    });
    add(environment, "striptags", Value::from_function(more_filters::striptags), texts);
    add(environment, "truncate", Value::from_function(more_filters::truncate), characters);
    add(environment, "indent", Value::from_function(filters::indent), indented);
    add(environment, "format", Value::from_function(filters::format), |state, name, arguments| {
        formatted(state, name, arguments, printf_columns)
    });
    add(environment, "split", Value::from_function(filters::split), pieces);
    add(environment, "lines", Value::from_function(filters::lines), pieces);
    add(environment, "batch", Value::from_function(filters::batch), counted);
    add(environment, "slice", Value::from_function(filters::slice), counted);
    add(environment, "zip", Value::from_function(filters::zip), paired);
    add(environment, "sum", Value::from_function(filters::sum), numbers);
    environment.add_filter("replace", replace);
    environment.add_filter(limits::KEEP_FILTER, limits::keep);
    environment.add_filter(limits::TEXT_FILTER, limits::with_text);
    add_test(environment, "startingwith", Value::from_function(tests::is_startingwith));
    add_test(environment, "endingwith", Value::from_function(tests::is_endingwith));
    add_test(environment, "in", Value::from_function(tests::is_in));
    environment.remove_global("debug"); // prints values without end; the reference has none
}

type Check = fn(&State, &str, &[Value]) -> Result<(), Error>;

fn add(environment: &mut Environment, name: &'static str, filter: Value, check: Check) {
    environment.add_filter(name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let arguments = arguments.into_values();
        check(state, name, &arguments)?;
        filter.call(state, &arguments)
    });
}

fn add_test(environment: &mut Environment, name: &'static str, test: Value) {
    environment.add_test(name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| -> Result<bool, Error> {
        let arguments = arguments.into_values();
        // `in` reads its second argument as what it is.
        let read = if name == "in" { 1 } else { arguments.len() };
        for argument in arguments.iter().take(read) {
            limits::with_text(state, argument)?;
        }
        Ok(test.call(state, &arguments)?.is_true())
    });
}

/// The bytes of one argument's text; strings are paid for by the engine.
fn bytes_of(state: &State, argument: Option<&Value>) -> Result<u64, Error> {
    match argument {
        Some(value) => match value.as_str() {
            Some(text) => Ok(text.len() as u64),
            None => limits::text_bytes(state, value),
        },
        None => Ok(0),
    }
}

fn texts(state: &State, name: &str, arguments: &[Value]) -> Result<(), Error> {
    let mut bytes = 0;
    for argument in arguments {
        bytes += bytes_of(state, Some(argument))?;
    }
    limits::allow(state, name, bytes)
}

fn changed_case(state: &State, name: &str, arguments: &[Value]) -> Result<(), Error> {
    limits::allow(state, name, CASE_GROWTH * bytes_of(state, arguments.first())?)
}

/// A list of them takes four bytes each.
fn characters(state: &State, name: &str, arguments: &[Value]) -> Result<(), Error> {
    limits::allow(state, name, 4 * bytes_of(state, arguments.first())?)
}

/// Items as they are, with a text between them.
fn joined(state: &State, name: &str, items: Option<&Value>, between: Option<&Value>) -> Result<(), Error> {
    let between = between.and_then(Value::as_str).map_or(0, |text| text.len() as u64);
    let mut bytes = 0;
    let Some(Ok(items)) = items.map(Value::try_iter) else { return Ok(()) };
    for (seen, item) in items.enumerate() {
        bytes += between + bytes_of(state, Some(&item))?;
        if bytes > limits::MAX_TEXT_BYTES as u64 {
            break;
        }
        if seen % 16 == 0 {
            state.consume_fuel(1)?;
        }
    }
    limits::allow(state, name, bytes)
}

fn named(arguments: &[Value], position: usize, name: &str) -> Option<Value> {
    let kwargs = arguments.last().filter(|last| last.is_kwargs());
    let positional = arguments.get(position).filter(|value| !value.is_kwargs());
    positional
        .cloned()
        .or_else(|| kwargs.and_then(|kwargs| kwargs.get_attr(name).ok()))
        .filter(|value| !value.is_undefined())
}

fn indented(state: &State, name: &str, arguments: &[Value]) -> Result<(), Error> {
    let width = named(arguments, 1, "width").and_then(|width| u64::try_from(width).ok()).unwrap_or(4);
    let bytes = bytes_of(state, arguments.first())?;
    let text = arguments.first().and_then(Value::as_str).unwrap_or_default();
    let lines = text.bytes().filter(|b| *b == b'\n').count() as u64 + 1;
    limits::allow(state, name, bytes.saturating_add(lines.saturating_mul(width)))
}

/// The number of pieces; each one is a value.
fn pieces(state: &State, name: &str, arguments: &[Value]) -> Result<(), Error> {
    let Some(text) = arguments.first().and_then(Value::as_str) else { return Ok(()) };
    let separator = arguments.get(1).and_then(Value::as_str);
    let most = limits::MAX_VALUES as usize + 1;
    let count = match (name, separator) {
        ("lines" | "splitlines", _) => text.matches('\n').take(most).count(),
        (_, Some(separator)) => text.matches(separator).take(most).count(),
        (_, None) => text.split_whitespace().take(most).count(),
    };
    limits::allow_values(state, name, count as u64, limits::MAX_VALUES)
}

/// Lists of the items, and as many as asked for.
fn counted(state: &State, name: &str, arguments: &[Value]) -> Result<(), Error> {
    let items = arguments.first().map_or(0, |items| count_of(items, limits::MAX_VALUES));
    let asked = named(arguments, 1, "count").and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    let fills = named(arguments, 2, "fill_with").is_some() || name == "slice";
    limits::allow_values(state, name, items.saturating_add(if fills { asked } else { 0 }), limits::MAX_VALUES)
}

fn paired(state: &State, name: &str, arguments: &[Value]) -> Result<(), Error> {
    let shortest = arguments.iter().map(|items| count_of(items, MAX_PAIRS)).min().unwrap_or(0);
    limits::allow_values(state, name, shortest, MAX_PAIRS)
}

/// At most one more than `most`.
fn count_of(items: &Value, most: u64) -> u64 {
    match items.len() {
        Some(length) => (length as u64).min(most + 1),
        None => items.try_iter().map_or(0, |items| items.take(most as usize + 1).count() as u64),
    }
}

/// As in Python, where it says so itself.
fn numbers(_: &State, _: &str, arguments: &[Value]) -> Result<(), Error> {
    match named(arguments, 2, "start") {
        Some(start) if start.kind() == ValueKind::String => {
            Err(Error::new(ErrorKind::InvalidOperation, "sum: strings cannot be added up; use join"))
        }
        _ => Ok(()),
    }
}

/// The filter `replace(old, new, count=None)`.
fn replace(state: &State, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let arguments = arguments.into_values();
    for argument in &arguments {
        limits::with_text(state, argument)?;
    }
    let (text, old, new, count, kwargs): (StringInput, StringInput, StringInput, Option<i64>, Kwargs) =
        from_args(&arguments)?;
    let count = match count {
        Some(count) => Some(count),
        None => kwargs.get::<Option<i64>>("count")?,
    };
    kwargs.assert_all_used()?;
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let (text, old, new) = (text.as_str(), old.as_str(), new.as_str());
    replaced(state, "replace", text, old, new, count)?;
    Ok(Value::from(text.replacen(old, new, count)))
}

fn replaced(state: &State, name: &str, text: &str, old: &str, new: &str, count: usize) -> Result<(), Error> {
    let more = new.len().saturating_sub(old.len()) as u64;
    let matches = if more > 0 { text.matches(old).take(count).count() as u64 } else { 0 };
    limits::allow(state, name, (text.len() as u64).saturating_add(matches.saturating_mul(more)))
}

/// Before one of Python's methods of strings runs.
pub(crate) fn check_method(state: &State, value: &Value, method: &str, arguments: &[Value]) -> Result<(), Error> {
    let Some(text) = value.as_str() else { return Ok(()) };
    let with_value = || -> Vec<Value> { std::iter::once(value).chain(arguments).cloned().collect() };
    match method {
        "upper" | "lower" | "title" | "capitalize" => limits::allow(state, method, CASE_GROWTH * text.len() as u64),
        "join" => joined(state, method, arguments.first(), Some(value)),
        "format" => formatted(state, method, &with_value(), format_columns),
        "split" | "splitlines" => pieces(state, method, &with_value()),
        "replace" => match arguments {
            [old, new, rest @ ..] => match (old.as_str(), new.as_str()) {
                (Some(old), Some(new)) => {
                    let count = rest.first().and_then(|count| usize::try_from(count.clone()).ok());
                    replaced(state, method, text, old, new, count.unwrap_or(usize::MAX))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// (fields, their widths and precisions together) of a format; the arguments after it.
type Columns = fn(&str, &[Value]) -> (u64, u64);

/// A format may show each argument in each field.
fn formatted(state: &State, name: &str, arguments: &[Value], columns: Columns) -> Result<(), Error> {
    let Some((format, shown)) = arguments.split_first() else { return Ok(()) };
    let text = format.as_str().unwrap_or_default();
    let (fields, width) = columns(text, shown);
    let mut bytes = 0u64;
    for argument in shown {
        bytes = bytes.saturating_add(bytes_of(state, Some(argument))?);
    }
    let bytes = bytes.saturating_mul(fields).saturating_add(width.saturating_mul(BYTES_PER_COLUMN));
    limits::allow(state, name, bytes.saturating_add(text.len() as u64))
}

/// Of `str.format`: numbers inside of braces.
fn format_columns(format: &str, _: &[Value]) -> (u64, u64) {
    let (mut fields, mut width, mut inside) = (0, 0u64, false);
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        match c {
            '{' => (fields, inside) = (fields + 1, true),
            '}' => inside = false,
            '0'..='9' if inside => {
                let (number, digits) = number_at(rest);
                width = width.saturating_add(number);
                length = digits;
            }
            _ => {}
        }
        rest = &rest[length..];
    }
    (fields, width)
}

/// Of printf: numbers between '%' and the letter, or arguments where a '*' stands for them.
fn printf_columns(format: &str, shown: &[Value]) -> (u64, u64) {
    let (mut fields, mut width) = (0, 0u64);
    for field in format.split('%').skip(1) {
        fields += 1;
        let key = if field.starts_with('(') { field.find(')').map_or(field.len(), |end| end + 1) } else { 0 };
        let mut rest = &field[key..];
        while rest.starts_with(|c: char| c.is_ascii_digit() || "#- +.*".contains(c)) {
            let (number, digits) = number_at(rest);
            if rest.starts_with('*') {
                for argument in shown.iter().filter(|argument| argument.is_number()) {
                    width = width.saturating_add(i64::try_from(argument.clone()).map_or(0, i64::unsigned_abs));
                }
            }
            width = width.saturating_add(number);
            rest = &rest[digits.max(1)..];
        }
    }
    (fields, width)
}

/// The number at the front of a text and how many digits it has.
fn number_at(text: &str) -> (u64, usize) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (if digits == 0 { 0 } else { text[..digits].parse().unwrap_or(u64::MAX) }, digits)
}
