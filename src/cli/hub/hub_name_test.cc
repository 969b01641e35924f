#include "cli/hub/hub_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace invar {
namespace {

std::string read(const std::string& text) {
  const auto n = parse_hub_name(text);
  return n.ok() ? fmt::format("{}|{}|{}|{}", n->owner, n->name, n->selector, n->revision) : "error";
}

TEST(HubName, is_read_in_every_form) {
  EXPECT_EQ(read("o/n"), "o|n||main");
  EXPECT_EQ(read("o/n:Q4_K_M"), "o|n|Q4_K_M|main");
  EXPECT_EQ(read("o/n.gguf:a/b-00001-of-00002.gguf@refs/pr/1"), "o|n.gguf|a/b-00001-of-00002.gguf|refs/pr/1");
  EXPECT_EQ(read("o/n@v1.0"), "o|n||v1.0");
  for (const char* wrong :
       {"", "o", "o/", "/n", "o/n/m", "../n", "o/..", "o/a..b", "o/n:", "o/n@", "o/n:../x", "o/n@../x",
        "o/n@a b", "-o/n", ".o/n", "o-/n", "o/n-", "o/n:a\nb", "http://o/n",
        // What stands before the last @ is the name, whatever stands before the first.
        "a/b@a@b", "a/b@x/../../victim@main", "a/b:c/../../victim@main", "a/b@../x", "a/b@main@../x",
        "a/b@x/../y", "a--b/c", "a/b--c"})
    EXPECT_EQ(read(wrong), "error") << wrong;
  EXPECT_TRUE(looks_like_hub_name("o/n"));
  for (const char* path : {"/a/b", "./a", "../a", "a/b/c.gguf", "model.gguf", "a b/c"})
    EXPECT_FALSE(looks_like_hub_name(path)) << path;
}

TEST(HubName, two_repositories_never_share_a_folder) {
  const auto refused = parse_hub_name("a--b/c");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("two hyphens in a row"), std::string::npos);
  HubName n{"a", "b", "", "main"};
  EXPECT_EQ(flaw_of(n), "");
  n.name = "b@x/../../victim";
  EXPECT_NE(flaw_of(n), "");
  n = {"a", "b", "../x", "main"};
  EXPECT_NE(flaw_of(n), "");
  n = {"a", "b", "", "../x"};
  EXPECT_NE(flaw_of(n), "");
}

std::string selected(const std::string& name, const std::vector<std::string>& paths) {
  const auto s = select_hub_files(*parse_hub_name(name), paths);
  return s.ok() ? fmt::format("{} <- {}", s->model, fmt::join(s->files, " ")) : s.status().message();
}

TEST(HubName, selects_the_file_that_a_quantization_names) {
  const std::vector<std::string> paths = {"README.md",
                                          "m-Q4_K.gguf",
                                          "m-Q4_K_M.gguf",
                                          "m-q8_0.gguf",
                                          "mmproj-m-f16.gguf",
                                          "BF16/m-BF16-00001-of-00002.gguf",
                                          "BF16/m-BF16-00002-of-00002.gguf"};
  EXPECT_EQ(selected("o/n", paths), "m-Q4_K_M.gguf <- m-Q4_K_M.gguf");
  EXPECT_EQ(selected("o/n:q4_k", paths), "m-Q4_K.gguf <- m-Q4_K.gguf");
  EXPECT_EQ(selected("o/n:Q8_0", paths), "m-q8_0.gguf <- m-q8_0.gguf");
  EXPECT_EQ(selected("o/n:m-q8_0.gguf", paths), "m-q8_0.gguf <- m-q8_0.gguf");
  EXPECT_EQ(selected("o/n:README.md", paths), "README.md <- README.md");
  const std::string split =
      "BF16/m-BF16-00001-of-00002.gguf <- BF16/m-BF16-00001-of-00002.gguf BF16/m-BF16-00002-of-00002.gguf";
  EXPECT_EQ(selected("o/n:BF16", paths), split);
  EXPECT_EQ(selected("o/n:BF16/m-BF16-00002-of-00002.gguf", paths), split);
  EXPECT_EQ(selected("o/n:Q2_K", paths).find("o/n:Q2_K: has no Q2_K; it has BF16/m-BF16-00001"), 0u);
  EXPECT_NE(selected("o/n:BF16", {paths[5]}).find("1 of the 2 shards"), std::string::npos);
  EXPECT_NE(selected("o/n", {"a-Q8_0.gguf", "b-Q8_0.gguf"}).find("has several models"), std::string::npos);
  EXPECT_NE(selected("o/n:Q8_0", {"a-Q8_0.gguf", "b-Q8_0.gguf"}).find("several files are Q8_0"),
            std::string::npos);
  EXPECT_EQ(selected("o/n", {"only.gguf"}), "only.gguf <- only.gguf");
}

TEST(HubName, a_whole_file_and_shards_of_the_same_name_are_two_models) {
  const std::string whole = "M-Q4_K_M.gguf", first = "M-Q4_K_M-00001-of-00002.gguf",
                    second = "M-Q4_K_M-00002-of-00002.gguf", single = "M-Q4_K_M-00001-of-00001.gguf";
  const std::vector<std::string> paths = {first, second, single, whole};
  EXPECT_EQ(selected("o/n:" + whole, paths), whole + " <- " + whole);
  EXPECT_EQ(selected("o/n:" + single, paths), single + " <- " + single);
  for (const std::string& shard : {first, second})
    EXPECT_EQ(selected("o/n:" + shard, paths), first + " <- " + first + " " + second);
  for (const char* name : {"o/n", "o/n:Q4_K_M"})
    for (const std::string& file : {whole, first, single})
      EXPECT_NE(selected(name, paths).find(file), std::string::npos) << selected(name, paths);
}

TEST(HubName, selects_safetensors_with_what_goes_with_them) {
  EXPECT_EQ(
      selected("o/n", {".gitattributes", "README.md", "config.json", "model-00001-of-00002.safetensors",
                       "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                       "original/params.json", "tokenizer.json", "pytorch_model.bin", "chat_template.jinja"}),
      " <- config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
      "model.safetensors.index.json tokenizer.json chat_template.jinja");
  EXPECT_NE(selected("o/n", {"pytorch_model.bin", "config.json"}).find("has neither"), std::string::npos);
}

}  // namespace
}  // namespace invar
