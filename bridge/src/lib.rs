//! `bridge`: tokenizers and chat templates from Rust behind a small C ABI (`include/bridge.h`, the contract).
//!
//! Rules of the border: no crate type crosses it; every export runs inside [`export`], which turns errors and panics
//! into a code and a per-thread message; handles are immutable and may be used from any thread.

mod abi;
mod base64;
mod bounded_normalizer;
mod builtins;
mod decoder_table;
mod gguf_unigram;
mod gguf_vocab;
mod gguf_word_piece;
mod guards;
mod json;
mod limits;
mod pre_tokenizers;
mod python;
mod rank_files;
mod render;
mod rewrite;
mod spm_merges;
mod strftime;
mod tags;
mod template;
mod tokenizer;
mod tokenizer_file;

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// What went wrong, as the numbers of bridge.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The caller's text, file or ids are not acceptable.
    Input = -1,
    /// A bound was reached: template fuel, output size, piece lengths.
    Limit = -2,
    /// A bug on this side; the message holds the panic text.
    Panic = -3,
    /// A chat template called `raise_exception`; the message is the template's own.
    Refused = -4,
    /// Well formed, but not something this build knows, for example an unknown pre-tokenizer name.
    Unsupported = -5,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub kind: Kind,
    pub message: String,
}

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }
}

/// Most failures are bad input, so a plain message becomes one.
impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::new(Kind::Input, message)
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

pub(crate) fn input<T>(message: impl Into<String>) -> Outcome<T> {
    Err(Failure::new(Kind::Input, message))
}

thread_local! {
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn with_last_error<T>(f: impl FnOnce(&str) -> T) -> T {
    LAST_ERROR.with(|last| f(&last.borrow()))
}

/// Text of a file inside a message: its start. The caller quotes what a terminal should not see.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// Runs the body of an exported function: 0, or a negative code with the message set for this thread. What a panic has to
/// say is in that message; the printer of panics is silenced, because it would write a model's text to the terminal.
pub(crate) fn export(body: impl FnOnce() -> Outcome<()>) -> i32 {
    static SILENT: Once = Once::new();
    SILENT.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let text = match payload.downcast_ref::<&str>() {
                Some(text) => (*text).to_string(),
                None => payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "panic without a message".into()),
            };
            Failure::new(Kind::Panic, text)
        }
    };
    LAST_ERROR.with(|last| *last.borrow_mut() = failure.message);
    failure.kind as i32
}
