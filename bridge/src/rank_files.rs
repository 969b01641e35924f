//! Tokenizer files that hold byte strings by rank and no merges: tekken.json, and the *.tiktoken files of the table below.
//! Within a piece of text, the neighbours whose union has the lowest rank are joined first.

use crate::pre_tokenizers;
use crate::spm_merges::merges_from_scores;
use crate::tokenizer_file::{MAX_FILE_BYTES, MAX_PATTERN_BYTES};
use crate::{base64, decoder_table, input, shown, Failure, Kind, Outcome};
use serde::Deserialize;
use serde_json::json;
use tokenizers::models::bpe::{Vocab, BPE};
use tokenizers::{AddedToken, DecoderWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer};

/// Real vocabularies have some hundred thousand tokens of at most some hundred bytes.
const MAX_TOKENS: usize = 1 << 22;
const MAX_TOKEN_BYTES: usize = 4096;

/// A rank file that says nothing but ranks: what its model's own code adds.
struct RankFile {
    name: &'static str,
    /// The row of the table of `tokenizer.ggml.pre` with its cut.
    pre: &'static str,
    /// Special tokens behind the last rank, in order.
    special: &'static [&'static str],
    /// After those, this many of this name and a number, with an end.
    numbered: (&'static str, usize, &'static str),
}

const RANK_FILES: &[RankFile] = &[RankFile {
    name: "qwen.tiktoken",
    pre: "qwen2",
    special: &["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    numbered: ("<|extra_", 205, "|>"),
}];

/// The special tokens of tekken files that do not list their own.
const TEKKEN_SPECIAL: &[&str] = &[
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];
const TEKKEN_BOS: &str = "<s>";

struct Special {
    text: String,
    control: bool,
}

/// Ids: either kind first, in the order given.
struct Ranks {
    file: String,
    pattern: String,
    tokens: Vec<Vec<u8>>,
    special: Vec<Special>,
    special_first: bool,
    bos: Option<&'static str>,
}

/// `name` is the name of the file, without folders.
pub(crate) fn read(name: &str, content: &[u8]) -> Outcome<Tokenizer> {
    if content.len() > MAX_FILE_BYTES {
        let message = format!("{}: {} bytes, the limit is {MAX_FILE_BYTES}", shown(name), content.len());
        return Err(Failure::new(Kind::Limit, message));
    }
    if name == "tekken.json" {
        return build(tekken(content)?);
    }
    match RANK_FILES.iter().find(|file| file.name == name) {
        Some(file) => build(tiktoken(file, content)?),
        None => {
            let known: Vec<&str> = RANK_FILES.iter().map(|file| file.name).collect();
            let message = format!(
                "{}: the cut and the special tokens of this file are not known (known: tekken.json, {}); \
                 convert it to tokenizer.json",
                shown(name),
                known.join(", ")
            );
            Err(Failure::new(Kind::Unsupported, message))
        }
    }
}

#[derive(Deserialize)]
struct TekkenFile {
    config: TekkenConfig,
    vocab: Vec<TekkenToken>,
    #[serde(default)]
    special_tokens: Option<Vec<TekkenSpecial>>,
}

#[derive(Deserialize)]
struct TekkenConfig {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct TekkenToken {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct TekkenSpecial {
    rank: usize,
    token_str: String,
    #[serde(default = "yes")]
    is_control: bool,
}

fn yes() -> bool {
    true
}

fn tekken(content: &[u8]) -> Outcome<Ranks> {
    let file: TekkenFile = serde_json::from_slice(content).map_err(|e| format!("tekken.json: {e}"))?;
    let (size, places) = (file.config.default_vocab_size, file.config.default_num_special_tokens);
    // More tokens than ids is usual: a smaller vocabulary is the start of a larger one.
    if size > MAX_TOKENS || places >= size || size - places > file.vocab.len() {
        return input(format!(
            "tekken.json: config.default_vocab_size {size} does not fit {places} special tokens and a vocab of {}",
            file.vocab.len()
        ));
    }
    let mut tokens = Vec::with_capacity(size - places);
    for (rank, token) in file.vocab.iter().take(size - places).enumerate() {
        if token.rank != rank {
            return input(format!("tekken.json: vocab[{rank}] has rank {}", token.rank));
        }
        match base64::decode(&token.token_bytes) {
            Some(bytes) => tokens.push(bytes),
            None => return input(format!("tekken.json: vocab[{rank}]: token_bytes is not base64")),
        }
    }
    let named = file.special_tokens.unwrap_or_else(|| {
        let usual = TEKKEN_SPECIAL.iter().take(places).enumerate();
        usual.map(|(rank, text)| TekkenSpecial { rank, token_str: text.to_string(), is_control: true }).collect()
    });
    let mut special: Vec<Special> =
        (0..places).map(|rank| Special { text: format!("<SPECIAL_{rank}>"), control: true }).collect();
    let mut taken = vec![false; places];
    for token in named {
        if token.rank >= places || std::mem::replace(&mut taken[token.rank], true) {
            return input(format!(
                "tekken.json: special_tokens: rank {} appears twice or is outside the {places} of the config",
                token.rank
            ));
        }
        special[token.rank] = Special { text: token.token_str, control: token.is_control };
    }
    let bos = special.iter().any(|token| token.text == TEKKEN_BOS).then_some(TEKKEN_BOS);
    Ok(Ranks { file: "tekken.json".into(), pattern: file.config.pattern, tokens, special, special_first: true, bos })
}

/// Lines of a token in base64, a blank, and its rank.
fn tiktoken(file: &RankFile, content: &[u8]) -> Outcome<Ranks> {
    let name = file.name;
    let text = std::str::from_utf8(content).map_err(|e| format!("{name}: not UTF-8 at byte {}", e.valid_up_to()))?;
    let mut tokens = Vec::new();
    for (line, entry) in text.lines().enumerate().filter(|(_, entry)| !entry.is_empty()) {
        let parts = entry.split_once(' ');
        match parts.and_then(|(token, rank)| Some((base64::decode(token)?, rank.parse::<usize>().ok()?))) {
            Some((token, rank)) if rank == tokens.len() => tokens.push(token),
            _ => return input(format!("{name}: line {} is not a token in base64 and rank {}", line + 1, tokens.len())),
        }
        if tokens.len() > MAX_TOKENS {
            return Err(Failure::new(Kind::Limit, format!("{name}: more than {MAX_TOKENS} tokens")));
        }
    }
    let (start, count, end) = file.numbered;
    let numbered = (0..count).map(|number| format!("{start}{number}{end}"));
    let special = file.special.iter().map(|text| text.to_string()).chain(numbered);
    let pattern = pre_tokenizers::find(file.pre).and_then(|pre| pre.splits.first()).copied();
    Ok(Ranks {
        file: name.into(),
        pattern: pattern.ok_or_else(|| Failure::new(Kind::Panic, "no such cut"))?.into(),
        tokens,
        special: special.map(|text| Special { text, control: true }).collect(),
        special_first: false,
        bos: None,
    })
}

fn build(ranks: Ranks) -> Outcome<Tokenizer> {
    let file = &ranks.file;
    if ranks.pattern.len() > MAX_PATTERN_BYTES {
        let message = format!("{file}: a pattern of {} bytes, the limit is {MAX_PATTERN_BYTES}", ranks.pattern.len());
        return Err(Failure::new(Kind::Limit, message));
    }
    let letters = decoder_table::letters_of_bytes();
    let mut known = [false; 256];
    let mut spelled = Vec::with_capacity(ranks.tokens.len());
    for (rank, token) in ranks.tokens.iter().enumerate() {
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return input(format!(
                "{file}: rank {rank} has {} bytes; 1 to {MAX_TOKEN_BYTES} are possible",
                token.len()
            ));
        }
        if let [byte] = token[..] {
            known[usize::from(byte)] = true;
        }
        spelled.push(token.iter().map(|byte| letters[usize::from(*byte)]).collect::<String>());
    }
    if let Some(byte) = known.iter().position(|known| !known) {
        return input(format!("{file}: no token is the byte {byte} alone, so texts with it have no ids"));
    }
    let (first_token, first_special) =
        if ranks.special_first { (ranks.special.len(), 0) } else { (0, ranks.tokens.len()) };
    let mut pieces = vec![""; ranks.special.len() + spelled.len()];
    for (rank, token) in spelled.iter().enumerate() {
        pieces[first_token + rank] = token;
    }
    let all_equal = vec![0.0; pieces.len()]; // then the order is that of the ids
    let is_long = |id: usize| pieces[id].chars().nth(1).is_some();
    let merges = merges_from_scores(file, &pieces, &all_equal, is_long)?;
    for (place, token) in ranks.special.iter().enumerate() {
        pieces[first_special + place] = &token.text;
    }
    let mut vocab = Vocab::with_capacity(pieces.len());
    for (id, piece) in pieces.iter().enumerate() {
        if let Some(first) = vocab.insert(piece.to_string(), id as u32) {
            return input(format!("{file}: '{}' is there twice, as ids {first} and {id}", shown(piece)));
        }
    }
    let bos = ranks.bos.and_then(|bos| Some((bos, *vocab.get(bos)?)));
    let model = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(true).build();
    let mut tokenizer = Tokenizer::new(model.map_err(|e| format!("{file}: {}", shown(&e.to_string())))?);
    for control in [true, false] {
        let wanted = ranks.special.iter().filter(|token| token.control == control && !token.text.is_empty());
        let list: Vec<AddedToken> =
            wanted.map(|token| AddedToken::from(token.text.clone(), control).normalized(false)).collect();
        if control {
            tokenizer.add_special_tokens(list).map_err(|e| e.to_string())?;
        } else {
            tokenizer.add_tokens(list).map_err(|e| e.to_string())?;
        }
    }
    let cut = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": ranks.pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    let cut = serde_json::from_value::<PreTokenizerWrapper>(cut)
        .map_err(|e| format!("{file}: pattern: {}", shown(&e.to_string())))?;
    tokenizer.with_pre_tokenizer(Some(cut));
    let fault = |e: serde_json::Error| Failure::new(Kind::Panic, e.to_string());
    let decoder = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    tokenizer.with_decoder(Some(serde_json::from_value::<DecoderWrapper>(decoder).map_err(fault)?));
    if let Some((bos, id)) = bos {
        let token = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
        let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
        let around = json!({"type": "TemplateProcessing",
            "single": [token(bos), text("A")], "pair": [token(bos), text("A"), text("B")],
            "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}}});
        tokenizer.with_post_processor(Some(serde_json::from_value::<PostProcessorWrapper>(around).map_err(fault)?));
    }
    Ok(tokenizer)
}
