//! GGUF vocabularies of SentencePiece's Unigram kind (T5, multilingual embedders): the cut of a text whose pieces have the
//! highest scores together.

use crate::gguf_vocab::{check_scores, part, GgufVocab, BYTE, UNKNOWN, UNUSED};
use crate::tokenizer_file::{check_charsmap, MAX_PIECE_BYTES};
use crate::{base64, input, shown, Failure, Kind, Outcome};
use serde_json::json;
use tokenizers::models::unigram::Unigram;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

pub(crate) fn build(vocab: &GgufVocab) -> Outcome<Tokenizer> {
    check_scores(vocab)?;
    if let Some(id) = vocab.tokens.iter().position(|token| token.len() > MAX_PIECE_BYTES) {
        let bytes = vocab.tokens[id].len();
        let message = format!("tokenizer.ggml.tokens[{id}] has {bytes} bytes, the limit is {MAX_PIECE_BYTES}");
        return Err(Failure::new(Kind::Limit, message));
    }
    let unknown = vocab.unknown.map(|id| id as usize).or_else(|| vocab.types.iter().position(|kind| *kind == UNKNOWN));
    let Some(unknown) = unknown.filter(|id| *id < vocab.tokens.len()) else {
        return input("tokenizer.ggml.unknown_token_id is missing or no token; letters that are in no piece need it");
    };
    let pieces = vocab.tokens.iter().zip(&vocab.scores).zip(&vocab.types).enumerate();
    let pieces = pieces.map(|(id, ((token, score), kind))| match (*kind, token.is_empty()) {
        // In no text: a blank is written as another letter.
        (UNUSED, _) | (_, true) => (format!(" {id}"), 0.0),
        _ => (token.to_string(), f64::from(*score)),
    });
    let has_bytes = vocab.types.contains(&BYTE);
    let model = Unigram::from(pieces.collect(), Some(unknown), has_bytes)
        .map_err(|e| format!("tokenizer.ggml.tokens: {}", shown(&e.to_string())))?;
    let mut tokenizer = Tokenizer::new(model);
    let mut steps = Vec::new();
    if !vocab.charsmap.is_empty() {
        let map = base64::encode(vocab.charsmap);
        check_charsmap(&map).map_err(|what| format!("tokenizer.ggml.precompiled_charsmap: {what}"))?;
        steps.push(json!({"type": "Precompiled", "precompiled_charsmap": map}));
    }
    if vocab.remove_extra_whitespaces {
        steps.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
        steps.push(json!({"type": "Strip", "strip_left": true, "strip_right": true}));
    }
    let rules = json!({"type": "Sequence", "normalizers": steps});
    let rules = serde_json::from_value::<NormalizerWrapper>(rules)
        .map_err(|e| format!("tokenizer.ggml.precompiled_charsmap: {}", shown(&e.to_string())))?;
    tokenizer.with_normalizer(Some(rules)).map_err(|e| e.to_string())?;
    let scheme = if vocab.space_prefix { "always" } else { "never" };
    let blanks = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    tokenizer.with_pre_tokenizer(Some(part!(PreTokenizerWrapper, blanks.clone())?));
    if !has_bytes {
        tokenizer.with_decoder(Some(part!(DecoderWrapper, blanks)?));
        return Ok(tokenizer);
    }
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if vocab.space_prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    tokenizer.with_decoder(Some(part!(DecoderWrapper, json!({"type": "Sequence", "decoders": decoders}))?));
    Ok(tokenizer)
}
