//! The bytes of every token id, so that a stream of ids becomes text by a table walk outside.

use crate::{shown, Failure, Kind, Outcome};
use serde_json::Value;
use std::collections::HashSet;
use tokenizers::decoders::wordpiece::cleanup;
use tokenizers::{Model, Tokenizer};

/// Flags of one id.
pub(crate) const CONTROL: u8 = 1; // hidden when special tokens are skipped
pub(crate) const RAW_BYTE: u8 = 2; // one byte of a byte-fallback run
pub(crate) const KNOWN: u8 = 4; // the id exists in the vocabulary

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rules {
    byte_level: bool,
    byte_fallback: bool,
    /// Blank written as this in pieces.
    blank: Option<String>,
    /// Blanks to take off the front of a whole text.
    pub strip_start: u8,
    word_piece: Option<WordPieceRules>,
}

/// A blank goes before every piece that does not start with the mark of a continued word; `tidy` takes it away again before
/// punctuation.
#[derive(Debug, PartialEq)]
struct WordPieceRules {
    mark: String,
    tidy: bool,
}

impl WordPieceRules {
    fn text_of(&self, piece: &str) -> String {
        let text = match piece.strip_prefix(&self.mark) {
            Some(rest) => rest.to_string(),
            None => format!(" {piece}"),
        };
        if self.tidy {
            cleanup(&text)
        } else {
            text
        }
    }
}

/// What the library's decoder does, in terms of a table; unusual decoders are refused.
pub(crate) fn rules(tokenizer: &Tokenizer) -> Outcome<Rules> {
    let mut rules = Rules::default();
    let decoder = serde_json::to_value(tokenizer.get_decoder()).map_err(|e| e.to_string())?;
    let steps = match decoder["decoders"].as_array() {
        Some(steps) => steps.clone(),
        None => vec![decoder],
    };
    for step in &steps {
        let known = match step["type"].as_str() {
            Some("ByteLevel") => {
                rules.byte_level = true;
                true
            }
            Some("ByteFallback") => {
                rules.byte_fallback = true;
                true
            }
            Some("Fuse") => true,
            Some("Replace") => {
                rules.blank = step["pattern"]["String"].as_str().map(str::to_string);
                rules.blank.is_some() && step["content"] == " "
            }
            Some("Strip") => {
                rules.strip_start = step["start"].as_u64().unwrap_or(0).min(255) as u8;
                step["content"] == " " && step["stop"] == 0
            }
            Some("Metaspace") => {
                rules.blank = step["replacement"].as_str().map(str::to_string);
                rules.strip_start = u8::from(step["prepend_scheme"] != "never");
                rules.blank.is_some()
            }
            // A text may start inside a word; then the marks of its first piece are not shown, unlike the library's.
            Some("WordPiece") => {
                let tidy = step["cleanup"].as_bool().unwrap_or(true);
                rules.word_piece = step["prefix"].as_str().map(|mark| WordPieceRules { mark: mark.to_string(), tidy });
                rules.strip_start = 1;
                rules.word_piece.is_some()
            }
            _ => false,
        };
        if !known {
            let name = if *step == Value::Null { "null".to_string() } else { step.to_string() };
            return Err(Failure::new(
                Kind::Unsupported,
                format!("tokenizer.json: decoder {} is not supported", shown(&name)),
            ));
        }
    }
    Ok(rules)
}

pub(crate) struct Table {
    pub bytes: Vec<u8>,
    /// Token i is bytes[offsets[i] .. offsets[i + 1]].
    pub offsets: Vec<u32>,
    pub flags: Vec<u8>,
}

/// Ids above the entries of a sane vocabulary would only make the table large.
const MAX_ID: u32 = 1 << 24;

pub(crate) fn build(tokenizer: &Tokenizer, rules: &Rules, silent: &HashSet<u32>) -> Outcome<Table> {
    let added = tokenizer.get_added_tokens_decoder();
    let letters = byte_letters();
    let mut pieces: Vec<(Vec<u8>, u8)> = Vec::new();
    // Id by id: a map of the whole vocabulary would take longer than all else that is made here.
    let mut left = tokenizer.get_model().get_vocab_size();
    while left > 0 && pieces.len() <= MAX_ID as usize {
        let piece = tokenizer.get_model().id_to_token(pieces.len() as u32);
        left -= usize::from(piece.is_some());
        pieces.push(piece.map_or_else(Default::default, |piece| piece_bytes(&piece, rules, &letters)));
    }
    let size = added.keys().map(|id| *id as usize + 1).max().unwrap_or(0).max(pieces.len());
    if size == 0 || size > MAX_ID as usize {
        return Err(Failure::new(Kind::Input, format!("tokenizer: {size} ids is no sane vocabulary")));
    }
    pieces.resize_with(size, Default::default);
    for (id, token) in &added {
        // Added tokens are text already, except that SentencePiece writes its blank in them too.
        let text = match (&rules.blank, &rules.word_piece) {
            (_, Some(word_piece)) => word_piece.text_of(&token.content),
            (Some(blank), _) => token.content.replace(blank.as_str(), " "),
            _ => token.content.clone(),
        };
        pieces[*id as usize] = (text.into_bytes(), KNOWN | if token.special { CONTROL } else { 0 });
    }
    for id in silent.iter().filter(|id| (**id as usize) < size) {
        pieces[*id as usize].0.clear();
    }
    let mut table = Table { bytes: Vec::new(), offsets: vec![0], flags: Vec::with_capacity(pieces.len()) };
    for (bytes, flags) in pieces {
        table.bytes.extend_from_slice(&bytes);
        let end =
            u32::try_from(table.bytes.len()).map_err(|_| "tokenizer: more than 4 GiB of token text".to_string())?;
        table.offsets.push(end);
        table.flags.push(flags);
    }
    Ok(table)
}

fn piece_bytes(piece: &str, rules: &Rules, letters: &ByteOfLetter) -> (Vec<u8>, u8) {
    if rules.byte_level {
        let bytes: Option<Vec<u8>> = piece.chars().map(|c| *letters.get(c as usize)?).collect();
        return (bytes.unwrap_or_else(|| piece.as_bytes().to_vec()), KNOWN);
    }
    if let Some(word_piece) = &rules.word_piece {
        return (word_piece.text_of(piece).into_bytes(), KNOWN);
    }
    if rules.byte_fallback && piece.len() == 6 && piece.starts_with("<0x") && piece.ends_with('>') {
        if let Some(byte) = piece.get(3..5).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            return (vec![byte], KNOWN | RAW_BYTE);
        }
    }
    let text = match &rules.blank {
        Some(blank) => piece.replace(blank.as_str(), " "),
        None => piece.to_string(),
    };
    (text.into_bytes(), KNOWN)
}

/// By code point: the byte that a letter stands for.
type ByteOfLetter = [Option<u8>; 0x144];

fn byte_letters() -> ByteOfLetter {
    let mut table = [None; 0x144];
    for (byte, letter) in (0..=255).zip(letters_of_bytes()) {
        table[letter as usize] = Some(byte);
    }
    table
}

/// The printable letters that byte-level BPE writes bytes with: printable Latin-1 stands for itself, the other bytes in
/// ascending order for U+0100 and up.
pub(crate) fn letters_of_bytes() -> [char; 256] {
    let mut others = '\u{100}'..;
    std::array::from_fn(|byte| match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte as u8),
        _ => others.next().unwrap_or('\0'),
    })
}
