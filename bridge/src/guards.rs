//! `a ~ b` makes texts of both sides, `a in b` of the left one when b is a text; the engine counts them afterwards only.
//! So each such operand is passed through a filter that looks at its size: `(a)|iv_text ~ (b)|iv_text`.

use crate::limits::TEXT_FILTER;
use minijinja::machinery::{tokenize, Span, Token};
use minijinja::syntax::SyntaxConfig;

/// The source with the operands guarded. What the lexer cannot read is left to the parser to report.
pub(crate) fn guard(source: &str, syntax: &SyntaxConfig) -> String {
    let mut operands = Vec::new();
    let mut tag: Vec<(Token, Span)> = Vec::new();
    let mut opens_block = false;
    for item in tokenize(source, false, syntax.clone()) {
        let Ok((token, span)) = item else { break };
        match token {
            Token::VariableStart => tag.clear(),
            Token::BlockStart => {
                tag.clear();
                opens_block = true;
                continue;
            }
            Token::VariableEnd | Token::BlockEnd => {
                collect(&tag, &mut operands);
                tag.clear();
            }
            // The word of a block is no part of an expression.
            Token::Ident(word) if opens_block && word != "for" => tag.push((Token::Comma, span)),
            _ => tag.push((token, span)),
        }
        opens_block = false;
    }
    operands.sort_unstable();
    operands.dedup();
    let mut places: Vec<(usize, bool)> =
        operands.iter().flat_map(|(begin, end)| [(*begin, true), (*end, false)]).collect();
    places.sort_unstable(); // operands nest or lie apart, and all ends at one place read the same, as do the beginnings
    let mut out = String::with_capacity(source.len() + places.len() * (TEXT_FILTER.len() + 2));
    let mut from = 0;
    for (place, begins) in places {
        out.push_str(&source[from..place]);
        match begins {
            true => out.push('('),
            false => {
                out.push_str(")|");
                out.push_str(TEXT_FILTER);
            }
        }
        from = place;
    }
    out.push_str(&source[from..]);
    out
}

type Tag<'a> = [(Token<'a>, Span)];

fn collect(tag: &Tag, operands: &mut Vec<(usize, usize)>) {
    let mut heads = usize::from(matches!(tag.first(), Some((Token::Ident("for"), _))));
    for at in 0..tag.len() {
        match tag[at].0 {
            Token::Tilde => {
                add(tag, begin_of(tag, at, ends_concat), at, operands);
                add(tag, at + 1, end_of(tag, at + 1), operands);
            }
            Token::Ident("in") if is_word(tag, at) => {
                if heads > 0 {
                    heads = 0; // `for x in`
                    continue;
                }
                let negated = at > 0 && matches!(tag[at - 1].0, Token::Ident("not"));
                let end = at - usize::from(negated);
                add(tag, begin_of(tag, end, ends_comparison), end, operands);
            }
            _ => {}
        }
    }
}

/// A literal needs no guard, a test gives a boolean.
fn add(tag: &Tag, begin: usize, end: usize, operands: &mut Vec<(usize, usize)>) {
    if begin >= end {
        return;
    }
    let literal = end - begin == 1 && !matches!(tag[begin].0, Token::Ident(_));
    let mut depth = 0;
    let tests = (begin..end).any(|i| {
        depth += nesting(&tag[i].0);
        depth == 0 && matches!(tag[i].0, Token::Ident("is")) && !follows_dot(tag, i)
    });
    if !literal && !tests {
        operands.push((tag[begin].1.start_offset as usize, tag[end - 1].1.end_offset as usize));
    }
}

fn nesting(token: &Token) -> i32 {
    match token {
        Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => 1,
        Token::ParenClose | Token::BracketClose | Token::BraceClose => -1,
        _ => 0,
    }
}

fn follows_dot(tag: &Tag, at: usize) -> bool {
    at > 0 && matches!(tag[at - 1].0, Token::Dot | Token::Pipe)
}

/// Whether the name is an operator here: neither an attribute nor the name of a test.
fn is_word(tag: &Tag, at: usize) -> bool {
    let before = |back: usize, word: &str| at >= back && matches!(tag[at - back].0, Token::Ident(name) if name == word);
    !(follows_dot(tag, at) || before(1, "is") || (before(1, "not") && before(2, "is")))
}

/// Tokens around an operand of a comparison.
fn ends_comparison(tag: &Tag, at: usize) -> bool {
    match tag[at].0 {
        Token::Eq | Token::Ne | Token::Lt | Token::Lte | Token::Gt | Token::Gte => true,
        Token::Comma | Token::Colon | Token::Assign => true,
        Token::Ident("in" | "and" | "or" | "not" | "if" | "else" | "recursive" | "for") => is_word(tag, at),
        _ => false,
    }
}

fn ends_concat(tag: &Tag, at: usize) -> bool {
    matches!(tag[at].0, Token::Tilde | Token::Plus | Token::Minus) || ends_comparison(tag, at)
}

fn begin_of(tag: &Tag, end: usize, ends: fn(&Tag, usize) -> bool) -> usize {
    let (mut begin, mut depth) = (end, 0);
    while begin > 0 {
        depth -= nesting(&tag[begin - 1].0);
        if depth < 0 || (depth == 0 && nesting(&tag[begin - 1].0) == 0 && ends(tag, begin - 1)) {
            break;
        }
        begin -= 1;
    }
    begin
}

fn end_of(tag: &Tag, begin: usize) -> usize {
    let (mut end, mut depth) = (begin, 0);
    while end < tag.len() && matches!(tag[end].0, Token::Minus) {
        end += 1;
    }
    while end < tag.len() {
        depth += nesting(&tag[end].0);
        if depth < 0 || (depth == 0 && nesting(&tag[end].0) == 0 && ends_concat(tag, end)) {
            break;
        }
        end += 1;
    }
    end
}
