#include "text/chat_template.h"

#include <boost/json.hpp>
#include <cstring>

#include "text/bridge_call.h"

namespace invar::text {

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string_view source,
                                                                  const ChatTemplateOptions& options) {
  const NamedTemplate only{"default", std::string(source)};
  return compile(std::span(&only, 1), options);
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::span<const NamedTemplate> templates,
                                                                  const ChatTemplateOptions& options) {
  boost::json::object globals;
  for (const auto& [name, token] : options.special_tokens)
    globals[name] = token;
  std::vector<iv_text> names, sources;
  for (const NamedTemplate& t : templates) {
    names.push_back(to_iv(t.name));
    sources.push_back(to_iv(t.source));
  }
  const iv_template* handle = nullptr;
  RETURN_IF_ERROR(bridge_status(iv_template_compile(names.data(), sources.data(), names.size(),
                                                    to_iv(boost::json::serialize(globals)), &handle)));
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(handle));
}

ChatTemplate::~ChatTemplate() {
  iv_template_free(handle_);
}

Result<Rendered> ChatTemplate::render(std::string_view context_json, int64_t now_unix,
                                      const RenderOptions& options) const {
  iv_render how{};
  how.template_name = to_iv(options.template_name);
  how.now = now_unix;
  how.continue_final_message = options.continue_final_message ? 1 : 0;
  how.track_generation = options.track_generation ? 1 : 0;
  BridgeBuffer text, ranges;
  RETURN_IF_ERROR(
      bridge_status(iv_template_render(handle_, to_iv(context_json), &how, text.out(), ranges.out())));
  Rendered rendered;
  rendered.text = text.bytes();
  static_assert(sizeof(Rendered::Range) == 2 * sizeof(uint64_t));
  rendered.generation.resize(ranges.bytes().size() / sizeof(Rendered::Range));
  if (!rendered.generation.empty()) {
    std::memcpy(rendered.generation.data(), ranges.bytes().data(), ranges.bytes().size());
  }
  return rendered;
}

}  // namespace invar::text
