//! A tokenizer.json, looked through before the library builds anything of it: sizes, numbers of steps and ids that the
//! library would take on trust.

use crate::bounded_normalizer::{BoundedNormalizer, MAX_STEPS};
use crate::{base64, input, shown, Failure, Kind, Outcome};
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::panic::catch_unwind;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

/// The largest published files have 40 MB, their longest pattern has some hundred bytes, their charsmap 320 KB.
pub(crate) const MAX_FILE_BYTES: usize = 128 << 20;
pub(crate) const MAX_PATTERN_BYTES: usize = 4096;
/// The library's kinds of model; older files leave their kind to be guessed.
const KINDS: [&str; 4] = ["BPE", "WordPiece", "Unigram", "WordLevel"];
const MAX_CHARSMAP_BYTES: usize = 4 << 20;
/// Of WordPiece; real files have 100.
const MAX_WORD_CHARS: u64 = 256;
/// Of Unigram, which looks for the end of each piece from every letter on; real ones have some dozens.
pub(crate) const MAX_PIECE_BYTES: usize = 1024;
/// JSON objects in the description of one part of the pipeline.
const MAX_OBJECTS: usize = 256;

#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: ModelOutline,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    normalized: bool,
}

#[derive(Deserialize)]
struct ModelOutline {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
    /// WordPiece tries every end of a word of at most this length.
    #[serde(default)]
    max_input_chars_per_word: Option<u64>,
    #[serde(default, rename = "vocab")]
    _vocab: CheckedVocab,
}

pub(crate) fn read(json: &[u8]) -> Outcome<Tokenizer> {
    if json.len() > MAX_FILE_BYTES {
        return Err(limit(format!("{} bytes, the limit is {MAX_FILE_BYTES}", json.len())));
    }
    let outline: Outline = serde_json::from_slice(json).map_err(wrong)?;
    if let Some(kind) = outline.model.kind.as_deref().filter(|kind| !KINDS.contains(kind)) {
        let message = format!(
            "tokenizer.json: model.type '{}' is not supported (known: {}); take the tokenizer of a model of a known kind",
            shown(kind),
            KINDS.join(", ")
        );
        return Err(Failure::new(Kind::Unsupported, message));
    }
    let parts = [
        ("normalizer", &outline.normalizer),
        ("pre_tokenizer", &outline.pre_tokenizer),
        ("post_processor", &outline.post_processor),
        ("decoder", &outline.decoder),
    ];
    for (name, part) in parts {
        let mut objects = 0;
        check_part(part, &mut objects).map_err(|what| limit(format!("{name}: {what}")))?;
    }
    check_added(&outline)?;
    if let Some(steps) = described::<PreTokenizerWrapper>("pre_tokenizer", &outline.pre_tokenizer)? {
        check_pre_tokenizer(&steps, &mut PreTokenizerSteps::default())?;
    }
    // Ids are a function of the text alone: no dropout, nothing padded or cut to a length the file chose.
    if outline.model.dropout.is_some_and(|p| p != 0.0) {
        return input("tokenizer.json: model.dropout makes tokens random; set it to null");
    }
    if outline.model.max_input_chars_per_word.is_some_and(|most| most > MAX_WORD_CHARS) {
        return Err(limit(format!("model.max_input_chars_per_word is larger than {MAX_WORD_CHARS}")));
    }
    let mut tokenizer = Tokenizer::from_bytes(json).map_err(wrong)?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|e| format!("tokenizer.json: truncation: {e}"))?;
    // The library numbers added tokens itself.
    for token in outline.added_tokens.iter().filter(|token| !token.content.is_empty()) {
        let given = tokenizer.token_to_id(&token.content);
        if given != Some(token.id) {
            let given = given.map_or("none".to_string(), |id| id.to_string());
            return input(format!(
                "tokenizer.json: added_tokens: '{}' has id {}, but the vocabulary gives it {given}",
                shown(&token.content),
                token.id
            ));
        }
    }
    Ok(tokenizer)
}

fn limit(what: String) -> Failure {
    Failure::new(Kind::Limit, format!("tokenizer.json: {what}"))
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Input, format!("tokenizer.json: {error}"))
}

/// Some parts panic on what they cannot read.
fn described<T: DeserializeOwned>(name: &str, part: &Value) -> Outcome<Option<T>> {
    match catch_unwind(|| serde_json::from_value::<Option<T>>(part.clone())) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => input(format!("tokenizer.json: {name}: {error}")),
        Err(_) => input(format!("tokenizer.json: {name}: not readable")),
    }
}

fn check_part(part: &Value, objects: &mut usize) -> Result<(), String> {
    match part {
        Value::Array(items) => items.iter().try_for_each(|item| check_part(item, objects)),
        Value::Object(entries) => {
            *objects += 1;
            if *objects > MAX_OBJECTS {
                return Err(format!("more than {MAX_OBJECTS} objects"));
            }
            for (key, value) in entries {
                match (key.as_str(), value.as_str()) {
                    ("precompiled_charsmap", Some(map)) => check_charsmap(map)?,
                    ("Regex", Some(pattern)) if pattern.len() > MAX_PATTERN_BYTES => {
                        return Err(format!("a pattern of {} bytes, the limit is {MAX_PATTERN_BYTES}", pattern.len()))
                    }
                    _ => check_part(value, objects)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The map starts with the size of its first table, which the library reserves without looking further.
pub(crate) fn check_charsmap(base64: &str) -> Result<(), String> {
    if base64.len() > MAX_CHARSMAP_BYTES {
        return Err(format!("a precompiled_charsmap of {} bytes, the limit is {MAX_CHARSMAP_BYTES}", base64.len()));
    }
    let mut bits = 0u64;
    for digit in base64.bytes().take(8) {
        let value = base64::digit(digit).ok_or("precompiled_charsmap is not base64")?;
        bits = bits << 6 | u64::from(value);
    }
    // Six bytes in eight digits; the first four are the size, little endian.
    let table = ((bits >> 16) as u32).swap_bytes() as usize;
    if base64.len() < 8 || table > base64.len() / 4 * 3 {
        return Err("precompiled_charsmap: the size of its table is wrong".into());
    }
    Ok(())
}

fn check_added(outline: &Outline) -> Outcome<()> {
    let rules = described::<NormalizerWrapper>("normalizer", &outline.normalizer)?;
    let normalizer = BoundedNormalizer::new(rules.as_ref())?;
    let (mut ids, mut texts) = (HashSet::new(), HashSet::new());
    for token in &outline.added_tokens {
        if !ids.insert(token.id) || !texts.insert(&token.content) {
            let (id, text) = (token.id, shown(&token.content));
            return input(format!("tokenizer.json: added_tokens: id {id} or its text '{text}' appears twice"));
        }
        if token.normalized {
            normalizer.normalize(&mut NormalizedString::from(token.content.as_str())).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct PreTokenizerSteps {
    all: usize,
    byte_level: usize,
    metaspace: usize,
}

/// Two kinds of step make pieces longer; twice the same one is no real file.
fn check_pre_tokenizer(step: &PreTokenizerWrapper, steps: &mut PreTokenizerSteps) -> Outcome<()> {
    match step {
        PreTokenizerWrapper::Sequence(sequence) => {
            return sequence.as_ref().iter().try_for_each(|part| check_pre_tokenizer(part, steps))
        }
        PreTokenizerWrapper::ByteLevel(_) => steps.byte_level += 1,
        PreTokenizerWrapper::Metaspace(_) => steps.metaspace += 1,
        _ => {}
    }
    steps.all += 1;
    if steps.all > MAX_STEPS || steps.byte_level > 1 || steps.metaspace > 1 {
        return Err(limit(format!(
            "pre_tokenizer: more than {MAX_STEPS} steps, or ByteLevel or Metaspace more than once"
        )));
    }
    Ok(())
}

/// A vocabulary whose tokens and ids are all different. The entries themselves are the library's business.
#[derive(Default)]
struct CheckedVocab;

impl<'de> Deserialize<'de> for CheckedVocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabVisitor)
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = CheckedVocab;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<CheckedVocab, A::Error> {
        let (mut ids, mut tokens) = (HashSet::new(), HashSet::new());
        while let Some((token, id)) = entries.next_entry::<String, u32>()? {
            if !ids.insert(id) {
                return Err(A::Error::custom(format!("model.vocab: id {id} appears twice")));
            }
            if tokens.contains(&token) {
                return Err(A::Error::custom(format!("model.vocab: '{}' appears twice", shown(&token))));
            }
            tokens.insert(token);
        }
        Ok(CheckedVocab)
    }

    /// Unigram: the id is the place.
    fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<CheckedVocab, A::Error> {
        let mut id = 0;
        while let Some((piece, _)) = pieces.next_element::<(String, IgnoredAny)>()? {
            if piece.len() > MAX_PIECE_BYTES {
                let bytes = piece.len();
                return Err(A::Error::custom(format!(
                    "model.vocab[{id}]: a piece of {bytes} bytes, the limit is {MAX_PIECE_BYTES}"
                )));
            }
            id += 1;
        }
        Ok(CheckedVocab)
    }
}
