// libFuzzer target: any chat template ends in an error or in one that renders a conversation, with tools and
// without, into an error or a text, within its bounds of work and memory. A panic of the crates is a fault,
// though the program survives it.
// layers: text

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace invar::text;
  const auto compiled =
      ChatTemplate::compile(std::string_view(reinterpret_cast<const char*>(data), size),
                            {.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
  if (!compiled.ok()) {
    CHECK(compiled.status().code() != invar::Code::kInternal);
    return 0;
  }
  constexpr std::string_view kPlain =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "x"}], "add_generation_prompt": true})";
  constexpr std::string_view kTools =
      R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function":
          {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}]})";
  const auto render = [&](std::string_view context, int64_t now, const RenderOptions& how) {
    const auto rendered = (*compiled)->render(context, now, how);
    CHECK(rendered.ok() || rendered.status().code() != invar::Code::kInternal);
  };
  render(kPlain, 1700000000, {});
  render(kTools, 1700000000, {});
  render(kPlain, 0, {.continue_final_message = true, .track_generation = true});
  return 0;
}
