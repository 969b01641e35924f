//! Builds a tokenizer from the vocabulary arrays of a GGUF file.

use crate::pre_tokenizers::{self, PreTokenizer};
use crate::spm_merges::merges_from_scores;
use crate::{gguf_unigram, gguf_word_piece, input, shown, Failure, Kind, Outcome};
use serde_json::{json, Value};
use std::collections::HashSet;
use tokenizers::models::bpe::{Vocab, BPE};
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

// tokenizer.ggml.token_type
pub(crate) const NORMAL: i32 = 1;
pub(crate) const UNKNOWN: i32 = 2;
pub(crate) const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
pub(crate) const UNUSED: i32 = 5;
pub(crate) const BYTE: i32 = 6;
const TYPES: std::ops::RangeInclusive<i32> = 0..=6; // undefined to byte

/// A part of the pipeline from the description that a tokenizer.json would hold.
macro_rules! part {
    ($kind:ty, $description:expr) => {
        serde_json::from_value::<$kind>($description)
            .map_err(|e| $crate::Failure::new($crate::Kind::Panic, e.to_string()))
    };
}
pub(crate) use part;

pub(crate) struct GgufVocab<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    pub types: Vec<i32>,
    pub scores: Vec<f32>,
    pub merges: Vec<&'a str>,
    pub space_prefix: bool,
    pub unknown: Option<u32>,
    /// SentencePiece's table of replacements; empty: none.
    pub charsmap: &'a [u8],
    pub remove_extra_whitespaces: bool,
}

/// What a file of this kind wants around a text when it does not say.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Around {
    bos: u8,
    eos: u8,
}

impl GgufVocab<'_> {
    /// Ids that stand for nothing, whatever the file calls them: rows that fill up an embedding.
    pub fn unused(&self) -> HashSet<u32> {
        (0..).zip(&self.types).filter(|(_, kind)| **kind == UNUSED).map(|(id, _)| id).collect()
    }
}

pub(crate) fn build(vocab: &GgufVocab) -> Outcome<(Tokenizer, Around)> {
    if vocab.tokens.is_empty() {
        return input("tokenizer.ggml.tokens is empty");
    }
    if vocab.types.len() != vocab.tokens.len() {
        return input(format!(
            "tokenizer.ggml.token_type has {} entries for {} tokens",
            vocab.types.len(),
            vocab.tokens.len()
        ));
    }
    if let Some((id, kind)) = vocab.types.iter().enumerate().find(|(_, kind)| !TYPES.contains(kind)) {
        return input(format!("tokenizer.ggml.token_type[{id}] is {kind}; types are 0 to 6"));
    }
    let in_front = |bos: bool| Around { bos: bos.into(), eos: 0 };
    let of_text = vocab.model == "gemma4" || vocab.model == "gpt2" && pre_tokenizers::OF_TEXT.contains(&vocab.pre);
    let (mut tokenizer, around) = match vocab.model {
        _ if of_text => (merged_text(vocab)?, in_front(vocab.model == "gemma4")),
        "gpt2" => byte_level(vocab)?,
        "llama" => (sentence_piece(vocab)?, in_front(true)),
        "bert" => (gguf_word_piece::build(vocab)?, Around { bos: 1, eos: 1 }),
        "t5" => (gguf_unigram::build(vocab)?, Around { bos: 0, eos: 1 }),
        other => {
            return Err(Failure::new(
                Kind::Unsupported,
                format!(
                    "tokenizer.ggml.model '{}' is not supported (known: gpt2, llama, gemma4, bert, t5)",
                    shown(other)
                ),
            ))
        }
    };
    let of_type = |wanted: &'static [i32], special: bool| {
        let pairs = vocab.tokens.iter().zip(&vocab.types);
        pairs
            .filter(|(token, kind)| wanted.contains(kind) && !token.is_empty())
            .map(|(token, _)| AddedToken::from(token.to_string(), special).normalized(false))
            .collect::<Vec<_>>()
    };
    tokenizer.add_special_tokens(of_type(&[UNKNOWN, CONTROL], true)).map_err(|e| e.to_string())?;
    // User-defined tokens are ordinary text that must stay whole; "skip special tokens" never hides them.
    let mut whole = of_type(&[USER_DEFINED], false);
    if of_text {
        // Runs of blanks come out of the merges, which know the other spelling; those of line ends have no merges.
        whole.retain(|token| !token.content.contains([' ', '▁']));
        let runs = of_type(&[NORMAL], false);
        whole.extend(runs.into_iter().filter(|token| token.content.bytes().all(|byte| byte == b'\n')));
    }
    tokenizer.add_tokens(whole).map_err(|e| e.to_string())?;
    Ok((tokenizer, around))
}

pub(crate) fn ids_of(tokens: &[&str]) -> Outcome<Vocab> {
    let mut ids = Vocab::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate().filter(|(_, token)| !token.is_empty()) {
        if let Some(first) = ids.insert(token.to_string(), id as u32) {
            return input(format!("tokenizer.ggml.tokens: '{}' appears twice, as ids {first} and {id}", shown(token)));
        }
    }
    Ok(ids)
}

fn byte_level(vocab: &GgufVocab) -> Outcome<(Tokenizer, Around)> {
    let Some(pre) = pre_tokenizers::find(vocab.pre) else {
        let message = match vocab.pre {
            "" => "tokenizer.ggml.pre is missing; without it the cut of the text is unknown".to_string(),
            name => format!(
                "tokenizer.ggml.pre '{}' is not supported (known: {})",
                shown(name),
                pre_tokenizers::known_names()
            ),
        };
        return Err(Failure::new(Kind::Unsupported, message));
    };
    let model = BPE::builder()
        .vocab_and_merges(ids_of(&vocab.tokens)?, merges(vocab)?)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(|e| format!("tokenizer.ggml.merges: {}", shown(&e.to_string())))?;
    let mut tokenizer = Tokenizer::new(model);
    if pre.nfc {
        set_normalizer(&mut tokenizer, json!({"type": "NFC"}))?;
    }
    tokenizer.with_pre_tokenizer(Some(part!(PreTokenizerWrapper, pre_tokenizer_json(pre)?)?));
    let decoder = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    tokenizer.with_decoder(Some(part!(DecoderWrapper, decoder)?));
    Ok((tokenizer, Around { bos: pre.add_bos.into(), eos: pre.add_sep.into() }))
}

fn merges(vocab: &GgufVocab) -> Outcome<Vec<(String, String)>> {
    let mut merges = Vec::with_capacity(vocab.merges.len());
    for (index, merge) in vocab.merges.iter().enumerate() {
        match merge.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() => {
                merges.push((left.to_string(), right.to_string()))
            }
            _ => return input(format!("tokenizer.ggml.merges[{index}] is not two pieces with a space between")),
        }
    }
    Ok(merges)
}

fn pre_tokenizer_json(pre: &PreTokenizer) -> Outcome<Value> {
    if let Some(steps) = pre.steps {
        let steps: Value = serde_json::from_str(steps).map_err(|e| Failure::new(Kind::Panic, e.to_string()))?;
        return Ok(json!({"type": "Sequence", "pretokenizers": steps}));
    }
    let mut steps: Vec<Value> = pre
        .splits
        .iter()
        .map(|regex| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false}))
        .collect();
    steps.push(json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}));
    Ok(json!({"type": "Sequence", "pretokenizers": steps}))
}

pub(crate) fn check_scores(vocab: &GgufVocab) -> Outcome<()> {
    if vocab.scores.len() != vocab.tokens.len() {
        return input(format!(
            "tokenizer.ggml.scores has {} entries for {} tokens",
            vocab.scores.len(),
            vocab.tokens.len()
        ));
    }
    if let Some(id) = vocab.scores.iter().position(|score| !score.is_finite()) {
        return input(format!("tokenizer.ggml.scores[{id}] is {}, not a finite number", vocab.scores[id]));
    }
    Ok(())
}

fn sentence_piece(vocab: &GgufVocab) -> Outcome<Tokenizer> {
    check_scores(vocab)?;
    let mergeable = |id: usize| matches!(vocab.types[id], NORMAL | USER_DEFINED);
    let merges = merges_from_scores("tokenizer.ggml.tokens", &vocab.tokens, &vocab.scores, mergeable)?;
    text_pieces(vocab, ids_of(&vocab.tokens)?, merges)
}

/// Merges as in byte-level BPE, but of the letters of the text itself, and over whole lines.
fn merged_text(vocab: &GgufVocab) -> Outcome<Tokenizer> {
    let spelled: Vec<String> = vocab.tokens.iter().map(|token| token.replace(' ', "▁")).collect();
    let texts: Vec<&str> = spelled.iter().map(String::as_str).collect();
    let mut tokenizer = text_pieces(vocab, ids_of(&texts)?, merges(vocab)?)?;
    let lines = json!({"type": "Split", "pattern": {"Regex": r"[^\n]+|\n+"}, "behavior": "Isolated", "invert": false});
    tokenizer.with_pre_tokenizer(Some(part!(PreTokenizerWrapper, lines)?));
    Ok(tokenizer)
}

/// BPE over text with its blanks written as U+2581, and over the bytes of letters that are in no piece.
fn text_pieces(vocab: &GgufVocab, ids: Vocab, merges: Vec<(String, String)>) -> Outcome<Tokenizer> {
    let mut builder = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
    if let Some(id) = vocab.types.iter().position(|kind| *kind == UNKNOWN) {
        builder = builder.unk_token(vocab.tokens[id].to_string());
    }
    let mut tokenizer =
        Tokenizer::new(builder.build().map_err(|e| format!("tokenizer.ggml.tokens: {}", shown(&e.to_string())))?);
    let mut steps = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if vocab.space_prefix {
        steps.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    set_normalizer(&mut tokenizer, json!({"type": "Sequence", "normalizers": steps}))?;
    tokenizer.with_decoder(Some(part!(DecoderWrapper, json!({"type": "Sequence", "decoders": decoders}))?));
    Ok(tokenizer)
}

fn set_normalizer(tokenizer: &mut Tokenizer, description: Value) -> Outcome<()> {
    tokenizer.with_normalizer(Some(part!(NormalizerWrapper, description)?)).map_err(|e| e.to_string())?;
    Ok(())
}
