// invar pull: fetches a model from a hub.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "base/quote.h"
#include "base/size_text.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/hub/hub_pull.h"
#include "cli/interrupt.h"
#include "cli/model_names.h"
#include "cli/verbs.h"

namespace invar {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

std::string token_of(const Environment& e) {
  if (!e.hub_token.empty() || e.hub_token_file.empty()) return e.hub_token;
  std::ifstream in(e.hub_token_file);
  std::string token;
  in >> token;
  return token.size() <= kMaxTokenBytes ? token : "";
}

void print_json(const HubName& name, const Pulled& pulled) {
  boost::json::array files;
  for (const PulledFile& p : pulled.files)
    files.push_back({{"path", printable(p.file.path)},
                     {"bytes", p.file.bytes},
                     {"etag", p.file.etag()},
                     {"fetched", p.fetched}});
  fmt::print("{}\n",
             json_for_terminal(boost::json::serialize(boost::json::object{{"model", name.text()},
                                                                          {"commit", pulled.commit},
                                                                          {"path", pulled.path},
                                                                          {"files", std::move(files)}})));
}

Status pull_one(const std::string& text, PullOptions options, bool json) {
  std::string hub = text;
  if (const ModelAlias* alias = find_alias(text)) {
    const std::string path = alias_path(*alias);
    if (std::error_code ec; !path.empty() && std::filesystem::exists(path, ec)) {
      if (json)
        fmt::print("{}\n", json_for_terminal(boost::json::serialize(
                               boost::json::object{{"model", text}, {"path", printable(path, 2000)}})));
      else
        fmt::print("{}\n", printable(path, 2000));
      fmt::print(stderr, "invar: {0} is there already; use it with --model {0}\n", text);
      return {};
    }
    hub = alias->hub;
    options.sha256 = alias->sha256;
  }
  ASSIGN_OR_RETURN(const HubName name, parse_hub_name(hub));
  if (environment().hub_offline)
    return {Code::kUnavailable, "HF_HUB_OFFLINE is set: nothing is fetched; unset it, or see invar ls"};
  ASSIGN_OR_RETURN(const Pulled pulled, pull(HubCache(environment().hub_cache), name, options));
  if (json) {
    print_json(name, pulled);
    return {};
  }
  uint64_t bytes = 0, fetched = 0;
  for (const PulledFile& p : pulled.files) {
    bytes += uint64_t(p.file.bytes);
    if (p.fetched) fetched += uint64_t(p.file.bytes);
  }
  fmt::print(
      stderr, "invar: {} at {}: {} {}, {}; use it with --model {}\n", name.repo(),
      pulled.commit.substr(0, 12), pulled.files.size(), pulled.files.size() == 1 ? "file" : "files",
      fetched == 0 ? "all were there" : fmt::format("{} of {} fetched", size_text(fetched), size_text(bytes)),
      text);
  fmt::print("{}\n", printable(pulled.path, 2000));
  return {};
}

}  // namespace

int pull_verb(Arguments args) {
  std::vector<std::string> names;
  PullOptions options;
  int32_t parallel = options.hub.parallel;
  bool json = false;
  std::string aliases;
  for (const ModelAlias& alias : model_aliases())
    aliases += fmt::format("{}{} ({})", aliases.empty() ? "" : ", ", alias.name,
                           size_text(std::stoull(alias.bytes)));
  Flags flags("pull", "fetch a model from a hub into the cache");
  flags.example("invar pull gemma3-270m", "a short name");
  flags.example("invar pull owner/name:Q4_K_M", "the file of a repository with this quantization");
  flags.example("invar pull owner/name@v1.0",
                "safetensors with config and tokenizer, at a branch, tag or commit");
  flags.rest("NAME...", &names, "owner/name[:FILE or quantization][@revision], or a short name: " + aliases);
  flags.section("Transfer");
  flags.integer("--parallel", &parallel, "requests at once (default: 4)", 1, 32);
  flags.section("Output");
  flags.on("--json", &json, "one JSON object per name on standard output, instead of the path");
  flags.note(
      "Without a quantization a repository with several GGUF files gives its Q4_K_M. An interrupted download "
      "goes on "
      "when it is asked for again; files count when their checksums are right.");
  flags.note(
      "Environment: HF_TOKEN for private and gated repositories (sent to the hub only), HF_ENDPOINT, "
      "HF_HUB_CACHE, "
      "HF_HOME, HF_HUB_OFFLINE; the cache is the one that other tools of the hub use.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (names.empty())
    return fail_usage(invalid_argument("which model? invar pull NAME, such as owner/name:Q4_K_M"));
  for (const std::string& name : names)
    if (const Status s = check_model_name(name); !s.ok()) return fail_usage(s);

  Interrupt interrupt;
  std::atomic<bool> stop{false};
  options.hub.endpoint = environment().hub_endpoint;
  options.hub.token = token_of(environment());
  options.hub.parallel = parallel;
  options.hub.stop = &stop;
  interrupt.on_signal([&] { stop = true; });
  Status status;
  for (size_t i = 0; i < names.size() && status.ok(); ++i)
    status = pull_one(names[i], options, json);
  interrupt.on_signal(nullptr);
  if (status.code() == Code::kCancelled)
    fmt::print(stderr, "invar: what has come is kept; run it again to go on\n");
  return status.ok() ? 0 : fail(status);
}

}  // namespace invar
