//! How long one tag of a template may be. The compiler folds constants anew at each level of an expression, so its time
//! grows with the square of the tag's length, and a chain of a hundred thousand minus signs would take a minute.

use crate::{Failure, Kind, Outcome};
use minijinja::machinery::{tokenize, Token};
use minijinja::syntax::SyntaxConfig;

/// Tokens between the two ends of a tag. The longest tags of published templates have about a hundred.
const MAX_TOKENS: usize = 500;

/// The engine's own lexer counts, so that both see the same tags. What it cannot read is left to the parser to report.
pub(crate) fn check(source: &str, syntax: &SyntaxConfig) -> Outcome<()> {
    let (mut count, mut start) = (0, 0);
    for item in tokenize(source, false, syntax.clone()) {
        let Ok((token, span)) = item else { return Ok(()) };
        match token {
            Token::VariableStart | Token::BlockStart => (count, start) = (0, span.start_line),
            _ => count += 1,
        }
        if count > MAX_TOKENS {
            let message =
                format!("chat_template: a tag has more than {MAX_TOKENS} operators, names and values (line {start})");
            return Err(Failure::new(Kind::Limit, message));
        }
    }
    Ok(())
}
