//! `tokenizer.ggml.pre`: the name a GGUF file gives to the way text is cut before byte-level BPE.
//!
//! One row per cut, with the names that files give it. A row says what the model's own `tokenizer.json` does or, where that
//! could not be established, what the name means to the programs that write such files. Names whose cut is not known are
//! absent on purpose, because a wrong cut gives plausible but wrong token ids.

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
/// Falcon cuts numbers in threes after bytes have become letters, some of which count as numerals.
const FALCON_STEPS: &str = r#"[
    {"type": "Punctuation", "behavior": "Contiguous"},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    {"type": "Digits", "individual_digits": false},
    {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false}
]"#;
/// One numeral.
const DIGIT: &str = r"\p{N}";
const CJK_AND_KANA: &str = r"[一-龥぀-ゟ゠-ヿ]+";
const DEEPSEEK_CODER_CJK: &str = r"[一-龥ࠀ-一가-퟿]+";
/// DeepSeek LLM: cased letters of the Unicode version its makers had; code points, because normalization of this file would
/// change some of them.
const DEEPSEEK_LLM_WORDS: &str = concat!(
    r"\s?[",
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}",
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}",
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}",
    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}",
    r"\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}",
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}",
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}",
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}",
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}",
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}",
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}",
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
    r"]+"
);
const DEEPSEEK_LLM_PUNCTUATION: &str = r"\s?[!-/:-~！-／：-～‘-‟　-。]+";
/// One to three numerals, from the front.
const DIGITS_IN_THREES: &str = r"\p{N}{1,3}";
/// Kimi K2: as o200k, with runs of Han letters by themselves.
const KIMI_K2: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// EXAONE MoE: a word goes on over single blanks.
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
/// Jais 2: runs of blanks by powers of two.
const JAIS_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
/// MiniCPM 5, after its numbers.
const ANY_DIGITS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// As Qwen 2 without English contractions.
const ONE_DIGIT_NO_CONTRACTIONS: &str =
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const YOUTU_SCRIPTS: &str = r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+";
/// o200k with single digits.
const O200K_ONE_DIGIT: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// Numerals in threes from the back of a run.
const THREES_FROM_THE_BACK: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))";
/// AFMoE: scripts that are written without blanks.
const AFMOE_SCRIPTS: &str = concat!(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}",
    r"\x{0E40}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}",
    r"\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
);
/// Chameleon: marks of images, blanks in twos and fours, each mark of punctuation by itself.
const CHAMELEON: &[&str] =
    &[r"<sentinel:[0-9]+>", r"IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", DIGIT, r"[\p{P}!-/:-@\[-`{-~]", GPT2];

/// Names, with `tokenizer.ggml.model` gpt2, of vocabularies whose pieces are of the text itself: the kind gemma4.
pub(crate) const OF_TEXT: &[&str] = &["gemma4", "granite-embed-multi-311m", "sarvam-moe"];

pub(crate) struct PreTokenizer {
    pub names: &'static [&'static str],
    /// Applied one after the other; each isolates its matches in the pieces of the one before.
    pub splits: &'static [&'static str],
    /// The whole list of steps, as tokenizer.json writes it, where it is not splits and then bytes.
    pub steps: Option<&'static str>,
    /// Unicode normalization form C first.
    pub nfc: bool,
    /// A piece that is a whole vocabulary entry is taken as it is, whatever the merges would give.
    pub ignore_merges: bool,
    /// BOS in front when the file does not say (`tokenizer.ggml.add_bos_token`).
    pub add_bos: bool,
    /// The separator, or else EOS, behind when the file does not say (`tokenizer.ggml.add_sep_token`).
    pub add_sep: bool,
}

const fn row(names: &'static [&'static str], splits: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { names, splits, steps: None, nfc: false, ignore_merges: false, add_bos: false, add_sep: false }
}

const TABLE: &[PreTokenizer] = &[
    row(
        &[
            "gpt-2",
            "phi-2",
            "jais",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "trillion",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
        ],
        &[GPT2],
    ),
    PreTokenizer { add_bos: true, add_sep: true, ..row(&["roberta-bpe", "jina-v1-en", "jina-v2-code"], &[GPT2]) },
    // Descendants of GPT-NeoX, whose tokenizer normalizes.
    PreTokenizer { nfc: true, ..row(&["olmo", "mpt", "modern-bert"], &[GPT2]) },
    row(&["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"], &[DIGIT, GPT2]),
    PreTokenizer { nfc: true, ..row(&["command-r"], &[DIGIT, GPT2]) },
    PreTokenizer {
        ignore_merges: true,
        add_bos: true,
        ..row(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
            &[THREE_DIGITS],
        )
    },
    row(&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], &[THREE_DIGITS]),
    PreTokenizer { nfc: true, ..row(&["qwen2", "deepseek-r1-qwen"], &[ONE_DIGIT]) },
    row(&["stablelm2", "hunyuan", "solar-open", "grok-2", "megrez", "kormo", "f2llmv2"], &[ONE_DIGIT]),
    PreTokenizer { nfc: true, ..row(&["qwen35"], &[ONE_DIGIT_MARKS]) },
    row(&["seed-coder"], &[SEED_CODER]),
    row(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    PreTokenizer { ignore_merges: true, ..row(&["gpt-4o"], &[O200K]) },
    row(&["llama4", "kanana2", "talkie", "minimax-m2"], &[O200K]),
    PreTokenizer { ignore_merges: true, ..row(&["granite-embed-multi-97m"], &[O200K]) },
    row(&["tiny_aya", "cohere2moe"], &[r"\d{1,3}(?=(?:\d{3})*\b)", O200K]),
    PreTokenizer { ignore_merges: true, ..row(&["youtu"], &[YOUTU_SCRIPTS, O200K_ONE_DIGIT]) },
    row(&["kimi-k2"], &[KIMI_K2]),
    row(&["exaone-moe"], &[EXAONE_MOE]),
    row(&["jais-2"], &[JAIS_2]),
    PreTokenizer { ignore_merges: true, ..row(&["minicpm5"], &[DIGITS_IN_THREES, ANY_DIGITS]) },
    row(&["ufakzeka"], &[ONE_DIGIT_NO_CONTRACTIONS]),
    row(&["laguna"], &[r"[^\n]+|[\n]+", ONE_DIGIT]),
    row(&["superbpe"], &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    PreTokenizer { ignore_merges: true, add_bos: true, ..row(&["tekken"], &[TEKKEN]) },
    row(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[DIGITS_IN_THREES, CJK_AND_KANA, DEEPSEEK_V3_WORDS]),
    row(&["afmoe"], &[THREES_FROM_THE_BACK, AFMOE_SCRIPTS, DEEPSEEK_V3_WORDS]),
    PreTokenizer { add_bos: true, ..row(&["chameleon"], CHAMELEON) },
    row(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CODER_CJK, DIGIT]),
    row(
        &["deepseek-llm"],
        &[r"[\r\n]", DEEPSEEK_LLM_WORDS, DEEPSEEK_LLM_PUNCTUATION, r"\s+$", DEEPSEEK_CODER_CJK, DIGIT],
    ),
    PreTokenizer { steps: Some(FALCON_STEPS), ..row(&["falcon"], &[]) },
    row(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    row(&["viking"], &[BLOOM, DIGIT]),
];

pub(crate) fn find(name: &str) -> Option<&'static PreTokenizer> {
    TABLE.iter().find(|row| row.names.contains(&name))
}

pub(crate) fn known_names() -> String {
    TABLE.iter().flat_map(|row| row.names).chain(OF_TEXT).copied().collect::<Vec<_>>().join(", ")
}
