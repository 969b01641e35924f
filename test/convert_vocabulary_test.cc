// Tokenizers of every kind that folders have, written as GGUF: the file gives the ids that the folder gives
// and that the library of the model gives, for all texts of the oracles.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "cli/convert/convert.h"
#include "cli/text_setup.h"
#include "format/gguf.h"
#include "format/test_files.h"
#include "text/tokenizer_fixtures.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using text::OracleRow;
using text::Special;

// A model of one narrow layer with so many rows, and the tokenizer's files.
class TinyModel {
 public:
  TinyModel(const std::string& name, int rows, const std::string& tokenizer, const std::string& config,
            const char* file = "tokenizer.json")
      : folder_(testing::TempDir() + "vocabulary-" + name), written_(folder_.string() + ".gguf") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write("config.json", fmt::format(kConfig, rows));
    write("tokenizer_config.json", config);
    write(file, tokenizer);
    write_weights(rows);
  }
  ~TinyModel() {
    fs::remove_all(folder_);
    fs::remove(written_);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  Status convert() const {
    const auto source = ModelSource::open(folder_.string());
    EXPECT_TRUE(source.ok()) << source.status().message();
    if (!source.ok()) return source.status();
    return convert_model(**source, written_, {}).status();
  }
  static std::shared_ptr<const text::Tokenizer> tokenizer_of(const std::string& path) {
    const auto source = ModelSource::open(path);
    EXPECT_TRUE(source.ok()) << source.status().message();
    if (!source.ok()) return nullptr;
    const auto model = set_up_text(**source);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? model->tokenizer : nullptr;
  }
  std::shared_ptr<const text::Tokenizer> from_folder() const { return tokenizer_of(folder_.string()); }
  std::shared_ptr<const text::Tokenizer> from_file() const { return tokenizer_of(written_); }
  const std::string& file() const { return written_; }

 private:
  static constexpr const char* kConfig =
      R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_act":"silu","hidden_size":8,
          "intermediate_size":8,"max_position_embeddings":64,"num_attention_heads":1,"num_hidden_layers":1,
          "num_key_value_heads":1,"head_dim":8,"rms_norm_eps":1e-5,"tie_word_embeddings":true,
          "vocab_size":{},"torch_dtype":"bfloat16","rope_theta":10000.0}})";

  void write_weights(int rows) const {
    std::string header;
    uint64_t at = 0;
    const auto tensor = [&](const std::string& name, const std::vector<int>& shape) {
      uint64_t bytes = 2;
      for (const int d : shape)
        bytes *= static_cast<uint64_t>(d);
      header += fmt::format(R"({}"{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}})",
                            header.empty() ? "" : ",", name, fmt::join(shape, ","), at, at + bytes);
      at += bytes;
    };
    tensor("model.embed_tokens.weight", {rows, 8});
    tensor("model.norm.weight", {8});
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      tensor(layer + norm + ".weight", {8});
    for (const char* matrix : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
      tensor(layer + matrix + ".weight", {8, 8});
    Bytes file;
    file.string("{" + header + "}").fill(at, 0);
    write_file((folder_ / "model.safetensors").string(), file.get());
  }

  fs::path folder_;
  std::string written_;
};

struct Kind {
  const char* oracle;
  const char* file;  // in the cache of fetched files
  const char* in_folder;
  const char* config;
  int rows;
  const char* model;
  const char* pre;
  const char* not_said = nullptr;  // texts with this have other ids
};

const Kind kKinds[] = {
    {"minilm-wordpiece", "minilm-wordpiece.json", "tokenizer.json",
     R"({"cls_token":"[CLS]","sep_token":"[SEP]","pad_token":"[PAD]","unk_token":"[UNK]"})", 30522, "bert",
     "default"},
    {"tekken-240911", "tekken-240911.json", "tekken.json", "{}", 131072, "gpt2", "tekken"},
    {"qwen-tiktoken", "qwen.tiktoken", "qwen.tiktoken", "{}", 151936, "gpt2", "stablelm2"},
    {"gemma3", "gemma3.json", "tokenizer.json", "{}", 262208, "llama", "default",
     // Pieces of blanks are blanks in GGUF, and not the letter that stands for them.
     "\u2581x"},
    {"llama2-spm", "llama2-spm.json", "tokenizer.json", "{}", 32064, "llama", "default"},
    {"llama3.1", "llama3.1.json", "tokenizer.json", "{}", 128256, "gpt2", "llama-bpe"},
    {"qwen3", "qwen3.json", "tokenizer.json", "{}", 151936, "gpt2", "qwen2"},
    {"gpt-oss-o200k", "gpt-oss-o200k.json", "tokenizer.json", "{}", 201088, "gpt2", "gpt-4o"},
    {"deepseek-v4", "deepseek-v4.json", "tokenizer.json", "{}", 129280, "gpt2", "deepseek-v3"},
};

void PrintTo(const Kind& kind, std::ostream* os) {
  *os << kind.oracle;
}

class VocabularyAsGguf : public testing::TestWithParam<Kind> {};

TEST_P(VocabularyAsGguf, gives_the_ids_of_the_folder_and_of_the_oracle) {
  const Kind& k = GetParam();
  const TinyModel model(k.oracle, k.rows, text::cached_file(k.file), k.config, k.in_folder);
  const Status converted = model.convert();
  ASSERT_TRUE(converted.ok()) << converted.message();
  const auto folder = model.from_folder(), file = model.from_file();
  ASSERT_TRUE(folder != nullptr && file != nullptr);
  int compared = 0;
  for (const OracleRow& row : text::oracle_rows(k.oracle)) {
    if (k.not_said != nullptr && row.text.find(k.not_said) != std::string::npos) continue;
    EXPECT_EQ(*file->encode(row.text, Special::kPlain), row.plain_ids) << row.text;
    EXPECT_EQ(*file->encode(row.text, Special::kParse), *folder->encode(row.text, Special::kParse))
        << row.text;
    ++compared;
  }
  EXPECT_GE(compared, 299);
  EXPECT_TRUE(std::ranges::equal(file->prefix(), folder->prefix()));
  EXPECT_TRUE(std::ranges::equal(file->suffix(), folder->suffix()));
  const auto source = ModelSource::open(model.file());
  EXPECT_EQ(**(*source)->gguf()->get_string("tokenizer.ggml.model"), k.model);
  EXPECT_EQ(**(*source)->gguf()->get_string("tokenizer.ggml.pre"), k.pre);
}

INSTANTIATE_TEST_SUITE_P(Kinds, VocabularyAsGguf, testing::ValuesIn(kKinds), [](const auto& info) {
  std::string name = info.param.oracle;
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
});

// What gguf-py makes of the same file (gguf 0.19.0 with mistral-common 1.13.1).
TEST(VocabularyAsGguf, tekken_has_the_tokens_and_merges_of_the_other_writer) {
  const TinyModel model("tekken", 131072, text::cached_file("tekken-240911.json"), "{}", "tekken.json");
  ASSERT_TRUE(model.convert().ok());
  const auto source = ModelSource::open(model.file());
  const GgufFile& file = *(*source)->gguf();
  const auto digest = [&](const char* key) {
    std::string lines;
    for (const std::string_view line : **file.get_strings(key))
      lines.append(line).append("\n");
    return hex(sha256(lines));
  };
  EXPECT_EQ(digest("tokenizer.ggml.merges"),
            "ac79ec80145198ae5419ce3433b56fa092d415d5ef483b58cb7a4a0dc0df5b7b");
  EXPECT_EQ(digest("tokenizer.ggml.tokens"),
            "684cdcd3ff51983eafca1abe98e257ad740f24044a4ff7276136f0617772c7cd");
  const auto types = **file.get_ints("tokenizer.ggml.token_type");
  for (size_t id = 0; id < types.size(); ++id)
    ASSERT_EQ(types[id], id < 1000 ? text::kControl : text::kNormal) << id;
  EXPECT_EQ(**file.get_u32("tokenizer.ggml.bos_token_id"), 1u);
  EXPECT_EQ(**file.get_u32("tokenizer.ggml.eos_token_id"), 2u);
  EXPECT_TRUE(**file.get_bool("tokenizer.ggml.add_bos_token"));
}

// The ids are those of SentencePiece (test/make/unigram_charsmap.py).
TEST(VocabularyAsGguf, unigram_gives_the_ids_of_sentence_piece) {
  const std::string json = text::test_data("tokenizers/unigram-charsmap.json");
  const TinyModel model("unigram", 912, json,
                        R"({"eos_token":"</s>","unk_token":"<unk>","pad_token":"<pad>"})");
  const Status converted = model.convert();
  ASSERT_TRUE(converted.ok()) << converted.message();
  const auto folder = model.from_folder(), tokenizer = model.from_file();
  ASSERT_TRUE(folder != nullptr && tokenizer != nullptr);
  int same = 0;
  for (const OracleRow& row : text::oracle_rows("unigram-charsmap")) {
    const auto plain = *tokenizer->encode(row.text, Special::kPlain);
    EXPECT_EQ(plain, *folder->encode(row.text, Special::kPlain)) << row.text;
    EXPECT_EQ(*tokenizer->encode(row.text, Special::kParse), *folder->encode(row.text, Special::kParse))
        << row.text;
    same += plain == row.ids;
  }
  // The others have cuts of equal scores, spellings of special tokens and bytes, or blanks written as
  // letters.
  EXPECT_GE(same, 292);
  EXPECT_TRUE(tokenizer->add_eos());

  const auto source = ModelSource::open(model.file());
  const GgufFile& file = *(*source)->gguf();
  EXPECT_EQ(**file.get_string("tokenizer.ggml.model"), "t5");
  EXPECT_EQ(**file.get_string("tokenizer.ggml.pre"), "default");
  EXPECT_TRUE(**file.get_bool("tokenizer.ggml.add_space_prefix"));
  EXPECT_TRUE(**file.get_bool("tokenizer.ggml.remove_extra_whitespaces"));
  EXPECT_EQ(**file.get_u32("tokenizer.ggml.unknown_token_id"), 2u);
  EXPECT_EQ(**file.get_u32("tokenizer.ggml.padding_token_id"), 0u);
  const GgufEntry* charsmap = file.find("tokenizer.ggml.precompiled_charsmap");
  ASSERT_NE(charsmap, nullptr);
  EXPECT_EQ(charsmap->element, GgufType::kU8);
  const auto types = **file.get_ints("tokenizer.ggml.token_type");
  EXPECT_EQ((std::vector<int64_t>{types[0], types[1], types[2], types[3], types[300], types[905]}),
            (std::vector<int64_t>{text::kControl, text::kControl, text::kUnknown, text::kByte, text::kNormal,
                                  text::kUnused}));
  const auto scores = **file.get_floats("tokenizer.ggml.scores");
  EXPECT_EQ(scores[905], -10000.0f);
  const auto pieces = boost::json::parse(json).at("model").at("vocab").as_array();
  for (size_t id = 0; id < pieces.size(); ++id)
    ASSERT_EQ(scores[id], static_cast<float>(pieces[id].at(1).to_number<double>())) << id;
}

TEST(VocabularyAsGguf, word_pieces_are_spelled_as_others_spell_them) {
  const TinyModel model(
      "bert", 30528, text::cached_file("minilm-wordpiece.json"),
      R"({"cls_token":"[CLS]","sep_token":"[SEP]","pad_token":"[PAD]","mask_token":"[MASK]"})");
  ASSERT_TRUE(model.convert().ok());
  const auto source = ModelSource::open(model.file());
  const GgufFile& file = *(*source)->gguf();
  std::vector<std::string_view> tokens;
  for (const std::string_view token : **file.get_strings("tokenizer.ggml.tokens"))
    tokens.push_back(token);
  EXPECT_EQ(tokens[0], "[PAD]");
  EXPECT_EQ(tokens[1], "\u2581[unused0]");
  EXPECT_EQ(tokens[1996], "\u2581the");
  EXPECT_EQ(tokens[2015], "s");
  EXPECT_EQ(tokens[30525], "[PAD30525]");
  for (const auto& [key, id] : {std::pair("bos", 101u),
                                {"eos", 102u},
                                {"unknown", 100u},
                                {"cls", 101u},
                                {"seperator", 102u},
                                {"padding", 0u},
                                {"mask", 103u}})
    EXPECT_EQ(**file.get_u32(fmt::format("tokenizer.ggml.{}_token_id", key)), id) << key;
  EXPECT_TRUE(**file.get_bool("tokenizer.ggml.add_bos_token"));
  EXPECT_TRUE(**file.get_bool("tokenizer.ggml.add_eos_token"));
}

TEST(VocabularyAsGguf, what_gguf_has_no_words_for_is_refused_by_name) {
  const std::string unigram = text::test_data("tokenizers/unigram-charsmap.json"),
                    word_piece = text::cached_file("minilm-wordpiece.json");
  const TinyModel model("refused", 30522, unigram, "{}");
  const auto refusal = [&](std::string json, std::string_view from, std::string_view to) {
    EXPECT_NE(json.find(from), std::string::npos) << from;
    json.replace(json.find(from), from.size(), to);
    model.write("tokenizer.json", json);
    const Status status = model.convert();
    EXPECT_FALSE(fs::exists(model.file()));
    return status.message();
  };
  EXPECT_THAT(
      refusal(text::test_data("tokenizers/unigram.json"), "", ""),
      HasSubstr(
          R"(GGUF has no words for its normalizer, {"type":"Sequence","normalizers":[{"type":"NFKC"})"));
  EXPECT_THAT(refusal(unigram, R"("always")", R"("first")"), HasSubstr("would give other ids than it does"));
  EXPECT_THAT(refusal(unigram, R"("unk_id":2)", R"("unk_id":null)"), HasSubstr("model.unk_id"));
  EXPECT_THAT(refusal(word_piece, R"("lowercase":true)", R"("lowercase":false)"),
              HasSubstr("would give other ids than it does"));
  EXPECT_THAT(refusal(word_piece, R"("handle_chinese_chars":true)", R"("handle_chinese_chars":false)"),
              HasSubstr("is for BertNormalizer"));
  EXPECT_THAT(refusal(word_piece, R"({"type":"BertPreTokenizer"})", R"({"type":"WhitespaceSplit"})"),
              HasSubstr("is for BertPreTokenizer"));
  EXPECT_THAT(refusal(word_piece, R"("max_input_chars_per_word":100)", R"("max_input_chars_per_word":50)"),
              HasSubstr("words of up to 100 letters, not of 50"));
  EXPECT_THAT(refusal(word_piece, R"("special":true)", R"("special":false)"),
              HasSubstr(R"(no word for "[PAD]")"));
}

}  // namespace
}  // namespace invar
