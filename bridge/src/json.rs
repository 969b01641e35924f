//! The JSON text of a template context, read as Python reads it: key order kept, the last of equal keys wins, integers
//! stay integers beyond 64 bits, floats are exact. (General JSON crates turn large integers into floats.)

use crate::{input, Outcome};
use minijinja::value::Value;

/// Python stops at about a thousand; chats never come near.
const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    pub fn parse(text: &str) -> Outcome<Json> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.blanks();
        if parser.at != text.len() {
            return parser.fail("text after the end of the value");
        }
        Ok(value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json> {
        match self {
            Json::Map(entries) => entries.iter_mut().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn into_value(self) -> Value {
        match self {
            Json::Null => Value::from(()),
            Json::Bool(b) => Value::from(b),
            Json::Int(i) => match i64::try_from(i) {
                Ok(small) => Value::from(small),
                Err(_) => Value::from(i),
            },
            Json::Float(f) => Value::from(f),
            Json::Str(s) => Value::from(s),
            Json::List(items) => items.into_iter().map(Json::into_value).collect(),
            Json::Map(entries) => Value::from_pairs(entries.into_iter().map(|(key, value)| (key, value.into_value()))),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn fail<T>(&self, what: &str) -> Outcome<T> {
        input(format!("template context: {what} at byte {}", self.at))
    }

    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Outcome<Json> {
        if depth > MAX_DEPTH {
            return self.fail("nesting too deep");
        }
        self.blanks();
        match self.peek() {
            b'{' => self.map(depth),
            b'[' => self.list(depth),
            b'"' => Ok(Json::Str(self.string()?)),
            b'-' | b'0'..=b'9' => self.number(),
            _ if self.eat("true") => Ok(Json::Bool(true)),
            _ if self.eat("false") => Ok(Json::Bool(false)),
            _ if self.eat("null") => Ok(Json::Null),
            _ => self.fail("not a JSON value"),
        }
    }

    fn list(&mut self, depth: usize) -> Outcome<Json> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.eat("]") {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.eat("]") {
                return Ok(Json::List(items));
            }
            if !self.eat(",") {
                return self.fail("expected ',' or ']'");
            }
        }
    }

    fn map(&mut self, depth: usize) -> Outcome<Json> {
        self.at += 1;
        let mut entries: Vec<(String, Json)> = Vec::new();
        self.blanks();
        if self.eat("}") {
            return Ok(Json::Map(entries));
        }
        loop {
            self.blanks();
            if self.peek() != b'"' {
                return self.fail("expected a key");
            }
            let key = self.string()?;
            self.blanks();
            if !self.eat(":") {
                return self.fail("expected ':'");
            }
            entries.push((key, self.value(depth + 1)?));
            self.blanks();
            if self.eat("}") {
                break;
            }
            if !self.eat(",") {
                return self.fail("expected ',' or '}'");
            }
        }
        Ok(Json::Map(without_repeats(entries)))
    }

    fn number(&mut self) -> Outcome<Json> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let digits = |parser: &mut Self| {
            let from = parser.at;
            while parser.peek().is_ascii_digit() {
                parser.at += 1;
            }
            parser.at > from
        };
        self.eat("-");
        let leading_zero = self.peek() == b'0' && bytes.get(self.at + 1).is_some_and(u8::is_ascii_digit);
        let mut ok = digits(self) && !leading_zero;
        let mut integer = true;
        if self.eat(".") {
            integer = false;
            ok &= digits(self);
        }
        if matches!(self.peek(), b'e' | b'E') {
            integer = false;
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            ok &= digits(self);
        }
        if !ok {
            return self.fail("not a JSON number");
        }
        let text = &self.text[start..self.at];
        if integer {
            return match text.parse() {
                Ok(value) => Ok(Json::Int(value)),
                Err(_) => self.fail("integer of more than 38 digits"),
            };
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Json::Float(value)),
            _ => self.fail("number out of range"),
        }
    }

    fn string(&mut self) -> Outcome<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(stop) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') else {
                return self.fail("string without an end");
            };
            out.push_str(&rest[..stop]);
            self.at += stop;
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => out.push(self.escape()?),
                _ => return self.fail("control character in a string"),
            }
        }
    }

    fn escape(&mut self) -> Outcome<char> {
        self.at += 1;
        let kind = self.peek();
        self.at += 1;
        Ok(match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut code = self.hex4()?;
                if (0xD800..0xDC00).contains(&code) && self.eat("\\u") {
                    let low = self.hex4()?;
                    if (0xDC00..0xE000).contains(&low) {
                        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    }
                }
                match char::from_u32(code) {
                    Some(c) => c,
                    None => return self.fail("half of a surrogate pair"),
                }
            }
            _ => {
                self.at -= 1;
                return self.fail("unknown escape");
            }
        })
    }

    fn hex4(&mut self) -> Outcome<u32> {
        let digits = self.text.get(self.at..self.at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.map(|d| u32::from_str_radix(d, 16)) {
            Some(Ok(code)) => {
                self.at += 4;
                Ok(code)
            }
            _ => self.fail("\\u needs four hex digits"),
        }
    }
}

/// A repeated key keeps its first place and its last value.
fn without_repeats(entries: Vec<(String, Json)>) -> Vec<(String, Json)> {
    let mut places = std::collections::HashMap::with_capacity(entries.len());
    let mut out: Vec<(String, Json)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        match places.get(&key) {
            Some(&place) => {
                let entry: &mut (String, Json) = &mut out[place];
                entry.1 = value;
            }
            None => {
                places.insert(key.clone(), out.len());
                out.push((key, value));
            }
        }
    }
    out
}
