//! GGUF vocabularies of BERT: the pieces of WordPiece, written in another way than in tokenizer.json.

use crate::gguf_vocab::{ids_of, part, GgufVocab, CONTROL, NORMAL, UNKNOWN};
use crate::{input, shown, Outcome};
use serde_json::json;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

const WORD_START: char = '▁';

/// A piece of the file as WordPiece spells it: the file marks the starts of words, WordPiece the pieces that go on.
fn spelled(token: &str, kind: i32) -> String {
    let bracketed = token.len() > 2 && token.starts_with('[') && token.ends_with(']');
    match token.strip_prefix(WORD_START) {
        _ if token.is_empty() || bracketed || matches!(kind, CONTROL | UNKNOWN) => token.to_string(),
        Some(start) => start.to_string(),
        None => format!("##{token}"),
    }
}

pub(crate) fn build(vocab: &GgufVocab) -> Outcome<Tokenizer> {
    let pieces: Vec<String> =
        vocab.tokens.iter().zip(&vocab.types).map(|(token, kind)| spelled(token, *kind)).collect();
    let texts: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let unknown = match vocab.unknown {
        Some(id) => texts.get(id as usize).copied(),
        None => texts.iter().find(|text| **text == "[UNK]").copied(),
    };
    let Some(unknown) = unknown.filter(|text| !text.is_empty()) else {
        return input("tokenizer.ggml.unknown_token_id is missing or no token; words that have no pieces need it");
    };
    // The file does not say whether its model knows capitals; a vocabulary with some was made for one that does.
    let is_cased = pieces.iter().zip(&vocab.types).any(|(piece, kind)| {
        *kind == NORMAL && !piece.starts_with('[') && piece.bytes().any(|b| b.is_ascii_uppercase())
    });
    let model = WordPiece::builder().vocab(ids_of(&texts)?).unk_token(unknown.to_string()).build();
    let mut tokenizer = Tokenizer::new(model.map_err(|e| format!("tokenizer.ggml.tokens: {}", shown(&e.to_string())))?);
    let rules = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                       "lowercase": !is_cased});
    tokenizer.with_normalizer(Some(part!(NormalizerWrapper, rules)?)).map_err(|e| e.to_string())?;
    tokenizer.with_pre_tokenizer(Some(part!(PreTokenizerWrapper, json!({"type": "BertPreTokenizer"}))?));
    let decoder = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    tokenizer.with_decoder(Some(part!(DecoderWrapper, decoder)?));
    Ok(tokenizer)
}
