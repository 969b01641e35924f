//! Two tags of a template's source are rewritten before the engine sees it.
//!
//! `{% generation %} ... {% endgeneration %}`, which only the reference renderer of chat templates knows, marks what the
//! assistant said. It becomes a call block around a function of ours, which has the same scope rules; the renderer then
//! sees where the blocks ended up. `{% set namespace.name = value %}` passes the value through a filter that bounds it.

use crate::limits;

/// The function that the rewritten tag calls.
pub(crate) const GENERATION_FUNCTION: &str = "iv_generation_block";

/// The source with line ends as Jinja reads them and the two tags rewritten. Text outside tags, comments and raw blocks stays.
pub(crate) fn rewrite(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(open) = rest.find('{') {
        let (text, tail) = rest.split_at(open);
        out.push_str(text);
        let length = match tail.as_bytes().get(1) {
            Some(b'#') => tail.find("#}").map_or(tail.len(), |end| end + 2),
            Some(b'{') => expression_end(tail, "}}"),
            Some(b'%') => expression_end(tail, "%}"),
            _ => 1,
        };
        let (tag, after) = tail.split_at(length);
        rest = after;
        if !tag.starts_with("{%") {
            out.push_str(tag);
            continue;
        }
        let (name, place) = tag_name(tag);
        match name {
            "generation" => {
                out.push_str(&tag[..place]);
                out.push_str(&format!("call {GENERATION_FUNCTION}()"));
                out.push_str(&tag[place + name.len()..]);
            }
            "endgeneration" => {
                out.push_str(&tag[..place]);
                out.push_str("endcall");
                out.push_str(&tag[place + name.len()..]);
            }
            "" => match namespace_set(tag) {
                Some(equals) => {
                    let end = tag.len() - 2 - usize::from(tag.ends_with("-%}") || tag.ends_with("+%}"));
                    let (target, expression) = (&tag[..equals + 1], &tag[equals + 1..end]);
                    out.push_str(&format!("{target} ({expression}) | {} {}", limits::KEEP_FILTER, &tag[end..]));
                }
                None => out.push_str(tag),
            },
            "raw" => {
                let body = raw_end(rest);
                out.push_str(tag);
                out.push_str(&rest[..body]);
                rest = &rest[body..];
            }
            _ => out.push_str(tag),
        }
    }
    out.push_str(rest);
    out
}

/// Length of a tag up to and with its end marker; the marker does not count inside strings and brackets.
fn expression_end(tag: &str, marker: &str) -> usize {
    let bytes = tag.as_bytes();
    let mut depth = 0usize;
    let mut at = 2;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            _ if depth == 0 && tag.is_char_boundary(at) && tag[at..].starts_with(marker) => return at + 2,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    tag.len()
}

/// The tag's only word and where it starts; an empty word when there is more in the tag than one word.
fn tag_name(tag: &str) -> (&str, usize) {
    let inner = tag.strip_suffix("%}").unwrap_or(tag);
    let inner = inner.strip_suffix(['-', '+']).unwrap_or(inner);
    let start = 2 + usize::from(matches!(tag.as_bytes().get(2), Some(b'-' | b'+')));
    let body = inner.get(start..).unwrap_or("");
    let word = body.trim();
    let place = start + (body.len() - body.trim_start().len());
    if word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        (word, place)
    } else {
        ("", place)
    }
}

/// The place of '=' in `{% set name.attribute = expression %}`.
fn namespace_set(tag: &str) -> Option<usize> {
    let word = |text: &str| text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let blanks = |text: &str| text.len() - text.trim_start().len();
    let mut at = 2 + usize::from(matches!(tag.as_bytes().get(2), Some(b'-' | b'+')));
    at += blanks(&tag[at..]);
    let after_set = tag[at..].strip_prefix("set")?;
    at += 3 + blanks(after_set);
    for separator in ['.', '='] {
        let name = word(&tag[at..]);
        at += name;
        at += blanks(&tag[at..]);
        if name == 0 || !tag[at..].starts_with(separator) || !tag.ends_with("%}") {
            return None;
        }
        if separator == '=' {
            return Some(at);
        }
        at += 1;
        at += blanks(&tag[at..]);
    }
    None
}

/// Where the `{% endraw %}` tag starts.
fn raw_end(text: &str) -> usize {
    let mut from = 0;
    while let Some(found) = text[from..].find("{%") {
        let at = from + found;
        let body = text[at + 2..].trim_start_matches(['-', '+']).trim_start();
        if let Some(tail) = body.strip_prefix("endraw") {
            if tail.trim_start().trim_start_matches(['-', '+']).starts_with("%}") {
                return at;
            }
        }
        from = at + 2;
    }
    text.len()
}
