//! `tokenizer.ggml.pre`: the name a GGUF file gives to the way text is cut before byte-level BPE.
//!
//! One row per name. A row says what the model's own `tokenizer.json` does; names whose original could not be
//! established are absent on purpose, because a wrong cut gives plausible but wrong token ids.

/// Contractions, words, numbers, punctuation, blanks: the cut of GPT-2, which byte-level pre-tokenizers call their own.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The cut of cl100k and Llama 3: numbers in threes.
const THREE_DIGITS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with single digits (Qwen 2 and 3).
const ONE_DIGIT: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 3.5: combining marks belong to words.
const ONE_DIGIT_MARKS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Seed-Coder: line ends never stick to punctuation.
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Ling: possessive where the original is.
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
/// o200k (GPT-4o, gpt-oss): words split where lower case meets upper case.
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Tekken (Mistral): as o200k without contractions, single digits.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// BLOOM: everything up to sentence punctuation, with one blank in front.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// One numeral.
const DIGIT: &str = r"\p{N}";
const CJK_AND_KANA: &str = r"[一-龥぀-ゟ゠-ヿ]+";
const DEEPSEEK_CODER_CJK: &str = r"[一-龥ࠀ-一가-퟿]+";
const DEEPSEEK_V3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

pub(crate) struct PreTokenizer {
    pub names: &'static [&'static str],
    /// Applied one after the other; each isolates its matches in the pieces of the one before.
    pub splits: &'static [&'static str],
    /// Unicode normalization form C first.
    pub nfc: bool,
    /// A piece that is a whole vocabulary entry is taken as it is, whatever the merges would give.
    pub ignore_merges: bool,
    /// BOS in front when the file does not say (`tokenizer.ggml.add_bos_token`).
    pub add_bos: bool,
}

const fn row(names: &'static [&'static str], splits: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { names, splits, nfc: false, ignore_merges: false, add_bos: false }
}

const TABLE: &[PreTokenizer] = &[
    row(&["gpt-2", "phi-2", "jais"], &[GPT2]),
    // Descendants of GPT-NeoX, whose tokenizer normalizes.
    PreTokenizer { nfc: true, ..row(&["olmo", "mpt"], &[GPT2]) },
    row(&["smollm", "starcoder", "refact"], &[DIGIT, GPT2]),
    PreTokenizer { nfc: true, ..row(&["command-r"], &[DIGIT, GPT2]) },
    PreTokenizer { ignore_merges: true, add_bos: true, ..row(&["llama-bpe", "llama3", "llama-v3"], &[THREE_DIGITS]) },
    row(&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], &[THREE_DIGITS]),
    PreTokenizer { nfc: true, ..row(&["qwen2", "deepseek-r1-qwen"], &[ONE_DIGIT]) },
    PreTokenizer { nfc: true, ..row(&["qwen35"], &[ONE_DIGIT_MARKS]) },
    row(&["seed-coder"], &[SEED_CODER]),
    row(&["bailingmoe", "bailingmoe2"], &[BAILING]),
    PreTokenizer { ignore_merges: true, ..row(&["gpt-4o"], &[O200K]) },
    row(&["llama4"], &[O200K]),
    PreTokenizer { ignore_merges: true, add_bos: true, ..row(&["tekken"], &[TEKKEN]) },
    row(&["deepseek-v3"], &[r"\p{N}{1,3}", CJK_AND_KANA, DEEPSEEK_V3_WORDS]),
    row(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CODER_CJK, DIGIT]),
    row(&["bloom", "poro-chat"], &[BLOOM]),
    row(&["viking"], &[BLOOM, DIGIT]),
];

pub(crate) fn find(name: &str) -> Option<&'static PreTokenizer> {
    TABLE.iter().find(|row| row.names.contains(&name))
}

pub(crate) fn known_names() -> String {
    TABLE.iter().flat_map(|row| row.names).copied().collect::<Vec<_>>().join(", ")
}
