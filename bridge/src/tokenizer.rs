//! The tokenizer behind a handle: two views over one model, and the byte table.

use crate::bounded_normalizer::{self, BoundedNormalizer};
use crate::decoder_table::{self, Table};
use crate::{input, Outcome};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizedString, Normalizer, PostProcessorWrapper, PreTokenizerWrapper,
    Token, TokenizerImpl,
};

/// Lets both views use the model of the one tokenizer, which may take a hundred megabytes.
#[derive(Clone)]
struct Shared {
    source: Arc<tokenizers::Tokenizer>,
    /// Special tokens that the model itself would find in a text: Unigram looks for all that its vocabulary holds. No merges
    /// of BPE lead to any, and WordPiece gets no words with brackets.
    hidden: Arc<HashMap<u32, String>>,
}

impl Shared {
    fn new(source: tokenizers::Tokenizer) -> Shared {
        let mut hidden = HashMap::new();
        if matches!(source.get_model(), ModelWrapper::Unigram(_)) {
            let added = source.get_added_tokens_decoder();
            hidden.extend(added.into_iter().filter(|(_, token)| token.special).map(|(id, token)| (id, token.content)));
        }
        Shared { source: Arc::new(source), hidden: Arc::new(hidden) }
    }

    fn model(&self) -> &ModelWrapper {
        self.source.get_model()
    }

    /// Special tokens are none of the model's business; text that spells one is cut after its first letter.
    fn without_special(&self, tokens: Vec<Token>) -> tokenizers::Result<Vec<Token>> {
        let is_spelled = |token: &Token| self.hidden.get(&token.id).is_some_and(|text| *text == token.value);
        if !tokens.iter().any(is_spelled) {
            return Ok(tokens);
        }
        let mut out = Vec::with_capacity(tokens.len() + 8);
        for token in tokens {
            match token.value.char_indices().nth(1) {
                Some((at, _)) if is_spelled(&token) => {
                    let start = token.offsets.0;
                    for (text, from) in [(&token.value[..at], start), (&token.value[at..], start + at)] {
                        let parts = self.without_special(self.model().tokenize(text)?)?;
                        out.extend(parts.into_iter().map(|mut part| {
                            part.offsets = (part.offsets.0 + from, part.offsets.1 + from);
                            part
                        }));
                    }
                }
                _ => out.push(token),
            }
        }
        Ok(out)
    }
}

impl Model for Shared {
    type Trainer = BpeTrainer; // asked for by the trait, never used

    fn tokenize(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        self.without_special(self.model().tokenize(text)?)
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.model().token_to_id(token)
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        self.model().id_to_token(id)
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.model().get_vocab()
    }
    fn get_vocab_size(&self) -> usize {
        self.model().get_vocab_size()
    }
    fn save(&self, folder: &Path, prefix: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        self.model().save(folder, prefix)
    }
    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

type View = TokenizerImpl<Shared, BoundedNormalizer, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

pub(crate) struct Tokenizer {
    /// The text of a special token becomes its id.
    parsing: View,
    /// The same text becomes ordinary tokens.
    plain: View,
    pub table: Table,
    pub strip_start: u8,
    /// Ids that the tokenizer file itself puts around one text.
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

impl Tokenizer {
    /// silent: ids whose text is nothing.
    pub fn new(source: tokenizers::Tokenizer, silent: &HashSet<u32>) -> Outcome<Tokenizer> {
        let normalizer = BoundedNormalizer::new(source.get_normalizer())?;
        normalizer.normalize(&mut NormalizedString::from(EXAMPLE)).map_err(|e| e.to_string())?;
        let rules = decoder_table::rules(&source)?;
        let table = decoder_table::build(&source, &rules, silent)?;
        let (prefix, suffix) = surroundings(&source)?;
        let shared = Shared::new(source);
        let source = &shared.source;
        let view = |plain: bool| -> Outcome<View> {
            let mut view: View = TokenizerImpl::new(shared.clone());
            view.with_normalizer(Some(normalizer.clone())).map_err(|e| e.to_string())?;
            view.with_pre_tokenizer(source.get_pre_tokenizer().cloned());
            view.with_decoder(source.get_decoder().cloned());
            view.with_added_vocabulary(source.get_added_vocabulary().clone());
            view.set_encode_special_tokens(plain);
            Ok(view)
        };
        Ok(Tokenizer {
            parsing: view(false)?,
            plain: view(true)?,
            table,
            strip_start: rules.strip_start,
            prefix,
            suffix,
        })
    }

    pub fn encode(&self, text: &str, parse_special: bool) -> Outcome<Vec<u32>> {
        let view = if parse_special { &self.parsing } else { &self.plain };
        bounded_normalizer::take_failure();
        let encoding = view.encode_fast(text, false).map_err(|e| format!("tokenizer: {e}"))?;
        if let Some(failure) = bounded_normalizer::take_failure() {
            return input(failure);
        }
        Ok(encoding.get_ids().to_vec())
    }

    /// The library's own decoder, the reference for the byte table.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Outcome<String> {
        Ok(self.parsing.decode(ids, skip_special).map_err(|e| format!("tokenizer: {e}"))?)
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.parsing.token_to_id(token)
    }
}

const EXAMPLE: &str = "a";

/// What the post-processor puts before and behind a text, seen on an example.
fn surroundings(source: &tokenizers::Tokenizer) -> Outcome<(Vec<u32>, Vec<u32>)> {
    let ids = |special: bool| -> Outcome<Vec<u32>> {
        Ok(source.encode_fast(EXAMPLE, special).map_err(|e| format!("tokenizer: {e}"))?.get_ids().to_vec())
    };
    let (bare, full) = (ids(false)?, ids(true)?);
    if full == bare {
        return Ok((Vec::new(), Vec::new()));
    }
    match full.windows(bare.len().max(1)).position(|window| window == bare) {
        Some(at) => Ok((full[..at].to_vec(), full[at + bare.len()..].to_vec())),
        None => input("tokenizer.json: the post-processor changes the text's own tokens"),
    }
}
