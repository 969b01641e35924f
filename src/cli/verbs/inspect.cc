// invar inspect: what a model file holds and whether this version runs it. Works for files that it does not
// run.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstring>
#include <map>
#include <span>

#include "base/quote.h"
#include "base/size_text.h"
#include "base/utf8.h"
#include "cli/engine_flags.h"
#include "cli/sampling_defaults.h"
#include "cli/text_setup.h"
#include "cli/verbs.h"
#include "format/gguf.h"
#include "models/audit.h"
#include "models/family.h"
#include "models/model.h"
#include "tensor/float16.h"

namespace invar {
namespace {

constexpr size_t kShownBytes = 100;  // of a long string
constexpr size_t kShownPath = 1000, kShownMessage = 800;
constexpr uint64_t kShownItems = 6;  // of a long array
constexpr size_t kShownLines = 200;  // of metadata and dropped tensors

// ---- metadata of GGUF files

template <class T>
std::string number_text(const std::byte* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return fmt::format("{}", x);
}

std::string scalar_text(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::kU8:
      return number_text<uint8_t>(p);
    case GgufType::kI8:
      return number_text<int8_t>(p);
    case GgufType::kU16:
      return number_text<uint16_t>(p);
    case GgufType::kI16:
      return number_text<int16_t>(p);
    case GgufType::kU32:
      return number_text<uint32_t>(p);
    case GgufType::kI32:
      return number_text<int32_t>(p);
    case GgufType::kU64:
      return number_text<uint64_t>(p);
    case GgufType::kI64:
      return number_text<int64_t>(p);
    case GgufType::kF32:
      return number_text<float>(p);
    case GgufType::kF64:
      return number_text<double>(p);
    case GgufType::kBool:
      return *p == std::byte{0} ? "false" : "true";
    default:
      return "";
  }
}

std::string value_text(const GgufEntry& e) {
  if (e.type == GgufType::kString)
    return quote({reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size()}, kShownBytes);
  if (e.type != GgufType::kArray) return scalar_text(e.type, e.bytes.data());
  std::string items;
  const uint64_t shown = std::min(e.count, kShownItems);
  if (e.element == GgufType::kString) {
    auto at = GgufStrings(e.bytes, e.count).begin();
    for (uint64_t i = 0; i < shown; ++i, ++at)
      items += (i ? ", " : "") + quote(*at, kShownBytes);
  } else if (e.element != GgufType::kArray && e.count > 0) {
    const size_t size = e.bytes.size() / e.count;
    for (uint64_t i = 0; i < shown; ++i)
      items += (i ? ", " : "") + scalar_text(e.element, e.bytes.data() + i * size);
  }
  return fmt::format("[{}{}] ({} of {})", items, e.count > shown ? ", ..." : "", e.count,
                     gguf_type_name(e.element));
}

// ---- the report

struct Report {
  std::unique_ptr<ModelSource> source;
  std::string format;
  Status runs;  // why it does not
  const Family* family = nullptr;
  ModelConfig config;  // valid with family
  std::vector<std::string> dropped;
  Status text_status;
  text::TextModel text;
  std::vector<std::pair<std::string, std::string>> metadata;  // key, shown value
};

// The checks that loading makes, without packing anything.
Status check_runs(Report& r) {
  ASSIGN_OR_RETURN(const Family* family, find_family(*r.source));
  ASSIGN_OR_RETURN(r.config, family->parse(*r.source));
  r.family = family;
  ASSIGN_OR_RETURN(const Graph graph, family->build(r.config));
  ASSIGN_OR_RETURN(Audit audit, audit_tensors(*r.source, r.config, graph));
  r.dropped = std::move(audit.dropped);
  // Of a packed model, opening is cheap and says whether the weights are there.
  if (r.source->packed() == nullptr) return {};
  ASSIGN_OR_RETURN(const auto model, Model::load(r.source->path(), {}));
  return model->wait_verified();
}

Result<Report> make_report(const std::string& path) {
  Report r;
  ASSIGN_OR_RETURN(r.source, ModelSource::open(path));
  r.runs = check_runs(r);
  auto text = set_up_text(*r.source);
  if (text.ok())
    r.text = std::move(*text);
  else
    r.text_status = text.status();
  if (const GgufFile* gguf = r.source->gguf()) {
    r.format = fmt::format("GGUF version {}", gguf->version());
    for (const GgufEntry& e : gguf->entries())
      r.metadata.emplace_back(printable_within(e.key, kShownBytes), value_text(e));
  } else {
    r.format = "safetensors with config.json";
    ASSIGN_OR_RETURN(const std::string config, r.source->side_file("config.json"));
    boost::json::error_code error;
    const boost::json::value v = boost::json::parse(config, error);
    if (const auto* object = v.if_object(); object && !error) {
      for (const auto& [key, value] : *object) {
        r.metadata.emplace_back(printable_within(key, kShownBytes),
                                printable_within(boost::json::serialize(value), kShownBytes));
      }
    }
  }
  if (const PackedOrigin* origin = r.source->packed())
    r.format = fmt::format("packed model of {} ({})", quote(origin->name, kShownPath), r.format);
  return r;
}

// Of a tensor in the file that it is from.
uint64_t bytes_of(const SourceTensor& t) {
  const Result<uint64_t> bytes = stored_bytes(*t.type, t.shape);
  return bytes.ok() ? *bytes : t.data.size();
}

// Messages quote what is in the file: what a template raised, an unknown name.
std::string message_text(const Status& status) {
  return printable_within(status.message(), kShownMessage);
}

std::string list_text(std::span<const int32_t> ids) {
  const auto shown = ids.first(std::min(ids.size(), size_t{2 * kShownItems}));
  return fmt::format("{}{}", fmt::join(shown, ", "), ids.size() > shown.size() ? ", ..." : "");
}

std::string packed_name(const SourceTensor& t) {
  if (t.type->form == nullptr) return "unsupported";
  return t.shape.size() == 2 ? t.type->form->name : "f32";  // vectors are kept as f32
}

void print_text(const Report& r, bool tensors) {
  std::map<std::string, int> types;
  uint64_t bytes = 0, elements = 0;
  for (const SourceTensor& t : r.source->tensors()) {
    ++types[t.type->name];
    bytes += bytes_of(t);
    uint64_t n = 1;
    for (const int64_t d : t.shape)
      n *= uint64_t(d);
    elements += n;
  }
  std::string counts;
  for (const auto& [type, count] : types)
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, type);
  fmt::print("file       {}\n", quote(r.source->path(), kShownPath));
  fmt::print("format     {}, architecture {}\n", r.format, quote(r.source->architecture(), kShownBytes));
  if (r.family != nullptr) {
    const ModelConfig& c = r.config;
    fmt::print(
        "model      {} layers, hidden {}, {} heads of {}, {} kv heads, ffn {}, vocabulary {}, context {}\n",
        c.layers, c.hidden, c.heads, c.head_dim, c.kv_heads, c.ffn, c.vocab, c.context_length);
  }
  fmt::print("tensors    {} ({}), {:.1f} M elements, {}\n", r.source->tensors().size(), counts,
             double(elements) / 1e6, size_text(bytes));
  if (r.text_status.ok()) {
    fmt::print("tokenizer  {} tokens, stop ids [{}]\n", r.text.tokenizer->vocab_size(),
               list_text(r.text.stop_ids));
    fmt::print("template   {}\n", r.text.chat_template ? "yes" : message_text(r.text.template_error));
  } else {
    fmt::print("tokenizer  cannot be used: {}\n", message_text(r.text_status));
  }
  const SamplingDefaults sampling = sampling_defaults(*r.source);
  fmt::print("sampling   {}\n", sampling.taken.empty() ? "the model says nothing" : sampling.taken);
  for (const std::string& warning : sampling.warnings)
    fmt::print("           {}\n", printable_within(warning, kShownMessage));
  for (const std::string& name : std::span(r.dropped).first(std::min(r.dropped.size(), kShownLines)))
    fmt::print("dropped    {} (not needed)\n", quote(name, kShownBytes));
  if (r.dropped.size() > kShownLines) fmt::print("dropped    and {} more\n", r.dropped.size() - kShownLines);
  fmt::print("verdict    {}\n", !r.runs.ok()         ? "does not run: " + message_text(r.runs)
                                : r.text_status.ok() ? "runs"
                                                     : "runs, but on token ids only");

  fmt::print("\nmetadata\n");
  for (const auto& [key, value] : std::span(r.metadata).first(std::min(r.metadata.size(), kShownLines)))
    fmt::print("  {} = {}\n", key, value);
  if (r.metadata.size() > kShownLines)
    fmt::print("  and {} more; --json shows all\n", r.metadata.size() - kShownLines);
  if (!tensors) return;
  fmt::print("\ntensors\n  {:<44} {:<7} {:<16} {:>12} {:<12} {}\n", "name", "type", "shape", "bytes",
             "packed as", "in the file");
  for (const SourceTensor& t : r.source->tensors())
    fmt::print("  {:<44} {:<7} {:<16} {:>12} {:<12} {}\n", quote(t.name, kShownBytes), t.type->name,
               fmt::format("[{}]", fmt::join(t.shape, ", ")), bytes_of(t), packed_name(t),
               quote(t.stored_name, kShownBytes));
}

boost::json::string json_text(std::string_view s) {
  const std::string safe = is_utf8(s) ? std::string(s) : quote(s, kQuoteAll);
  return boost::json::string(safe.data(), safe.size());
}

void print_json(const Report& r) {
  boost::json::array tensors;
  for (const SourceTensor& t : r.source->tensors())
    tensors.push_back({{"name", json_text(t.name)},
                       {"stored_name", json_text(t.stored_name)},
                       {"type", t.type->name},
                       {"shape", boost::json::value_from(t.shape)},
                       {"packed", packed_name(t)},
                       {"bytes", bytes_of(t)}});
  boost::json::array dropped;
  for (const std::string& name : r.dropped)
    dropped.push_back(json_text(name));
  boost::json::object metadata;
  for (const auto& [key, value] : r.metadata)
    metadata[json_text(key)] = json_text(value);
  const PackedOrigin* origin = r.source->packed();
  boost::json::value packed;
  if (origin != nullptr)
    packed = boost::json::object{{"of", json_text(origin->name)}, {"digest", origin->digest}};
  const boost::json::object report = {{"path", json_text(r.source->path())},
                                      {"format", json_text(r.format)},
                                      {"packed", packed},
                                      {"architecture", json_text(r.source->architecture())},
                                      {"runs", r.runs.ok()},
                                      {"problem", json_text(r.runs.message())},
                                      {"tokenizer_problem", json_text(r.text_status.message())},
                                      {"stop_ids", boost::json::value_from(r.text.stop_ids)},
                                      {"chat_template", r.text.chat_template != nullptr},
                                      {"dropped", std::move(dropped)},
                                      {"metadata", std::move(metadata)},
                                      {"tensors", std::move(tensors)}};
  fmt::print("{}\n", json_for_terminal(boost::json::serialize(report)));
}

}  // namespace

int inspect_verb(Arguments args) {
  EngineFlags engine;
  std::vector<std::string> files;
  bool tensors = false, json = false;
  Flags flags("inspect", "show what is in a model file and whether it can run");
  flags.example("invar inspect model.gguf", "metadata and verdict");
  flags.example("invar inspect model.gguf --tensors", "and every tensor with the form it is packed into");
  flags.rest("FILE", &files, "the model; without it --model or the default model");
  flags.section("Output");
  flags.on("--tensors", &tensors, "list the tensors");
  flags.on("--json", &json, "one JSON object with everything");
  flags.note(
      "Exit code: 0 if the model runs, be it on token ids only; 1 if not, or if the file cannot be read; 2 "
      "wrong usage.");
  engine.declare_model(flags);
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (files.size() > 1) return fail_usage(invalid_argument("inspect takes one file"));
  if (!files.empty() && files[0].empty())
    return fail_usage(
        invalid_argument("FILE is empty; name a model file, or leave it out for the default model"));
  if (!files.empty() && engine.names_model())
    return fail_usage(invalid_argument("give either FILE or --model, not both"));

  if (!files.empty()) engine.set_model(files[0]);
  const Result<std::string> path = engine.model_path();
  if (!path.ok()) return fail(path.status());
  const auto report = make_report(*path);
  if (!report.ok()) return fail(report.status());
  if (json)
    print_json(*report);
  else
    print_text(*report, tensors);
  return report->runs.ok() ? 0 : 1;
}

}  // namespace invar
