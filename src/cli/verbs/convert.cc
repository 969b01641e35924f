// invar convert: a model in other tensor types, or packed, and what that costs.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>

#include "base/quote.h"
#include "base/size_text.h"
#include "cli/convert/convert.h"
#include "cli/convert/mlx_folder.h"
#include "cli/convert/quantized_source.h"
#include "cli/environment.h"
#include "cli/model_names.h"
#include "cli/quality/model_comparison.h"
#include "cli/verbs.h"
#include "format/packed_source.h"
#include "models/packed_model.h"

namespace invar {
namespace {

constexpr size_t kShownBytes = 300;

struct Plan {
  EngineFlags flags;  // with the source as its model
  ScoredTextFlags text;
  std::string target;
  ConvertOptions convert;
  bool new_types = false;  // --type was given; without an encoder: MLX-4
  bool to_mlx = false, packed = false, measure = true, json = false;
};

std::string types_text(const Conversion& c) {
  std::string out;
  for (const auto& [type, count] : c.types)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, type);
  return out;
}

// measured: an error says why there are no figures.
// asked: --type.
void print_text(const Conversion& c, const BlockEncoder* asked, const Result<ModelComparison>& measured) {
  fmt::print("tensors     {}: {}; {} unchanged; {} from {} ({:.1f}%)\n", c.tensors, types_text(c), c.kept,
             size_text(c.bytes_after), size_text(c.bytes_before),
             c.bytes_before > 0 ? 100.0 * double(c.bytes_after) / double(c.bytes_before) : 100.0);
  if (c.widened > 0)
    fmt::print(
        "note        {} of a type that GGUF lacks became F32; --type Q8_0 or --packed keeps them small\n",
        c.widened);
  if (asked != nullptr && c.types.contains("Q8_0") && std::string_view(asked->type) != "Q8_0")
    fmt::print("note        {} got Q8_0: output layer, embedding, or rows that blocks of {} do not divide\n",
               c.types.at("Q8_0"), asked->type);
  if (measured.ok())
    fmt::print("{}text        {}, {} tokens scored; A is the source\n", figures_text(measured->figures),
               printable_within(measured->text.name, kShownBytes), measured->figures.tokens);
  else
    fmt::print("KL(A||B)    not measured: {}\n", printable_within(measured.status().message(), kShownBytes));
}

void add_to(boost::json::object& o, const Conversion& c, const Result<ModelComparison>& measured) {
  boost::json::object types;
  for (const auto& [type, count] : c.types)
    types[type] = count;
  o["tensor_bytes"] = c.bytes_after;
  o["source_tensor_bytes"] = c.bytes_before;
  o["tensors"] = c.tensors;
  o["unchanged"] = c.kept;
  o["types"] = std::move(types);
  if (measured.ok()) {
    const Comparison& f = measured->figures;
    o["kl"] = {
        {"mean", f.mean}, {"mean_error", f.mean_error}, {"median", f.median}, {"p99", f.p99}, {"max", f.max}};
    o["top1_agreement"] = f.top1_agreement;
    o["scored_tokens"] = f.tokens;
    o["text"] = printable(measured->text.name);
  } else {
    o["kl"] = nullptr;
    o["not_measured"] = printable_within(measured.status().message(), kShownBytes);
  }
}

Status not_measured() {
  return Status(Code::kCancelled, "--no-kl was given");
}

// The target against the source. An error: the user ended it.
Status measure(const Plan& plan, Interrupt& interrupt, Result<ModelComparison>* measured) {
  if (!plan.measure) return {};
  ComparedModel a, b;
  a.flags = b.flags = plan.flags;
  b.flags.set_model(plan.target);
  *measured = compare_models(a, b, plan.text, interrupt);
  if (!interrupt.seen()) return {};
  return measured->ok() ? Status(Code::kCancelled, "interrupted") : measured->status();
}

// Its weights have the types of the source no more.
Status refuse_packed(const ModelSource& source) {
  if (source.packed() == nullptr) return {};
  return unsupported(fmt::format("{} is a packed model; convert its source, {}, instead",
                                 printable_within(source.path(), kShownBytes),
                                 printable_within(source.packed()->name, kShownBytes)));
}

// What the operating system would refuse after all the work.
Status check_target(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::file_status status = fs::symlink_status(path, ec);
  if (fs::exists(status) && !fs::is_regular_file(status))
    return invalid_argument(fmt::format("{}: exists and is not a regular file; name another file", path));
  const fs::path folder = fs::absolute(path, ec).parent_path();
  if (!fs::is_directory(folder, ec))
    return not_found(fmt::format("{}: there is no such folder", folder.string()));
  return {};
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// As every later start will open it: whatever that would not take is known now.
Result<std::shared_ptr<const Model>> open_packed(const Plan& plan, double* seconds) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::load(plan.target, {}));
  *seconds = seconds_since(start);
  return model;
}

Status write_packed(Plan& plan, Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::string path, plan.flags.model_path());
  RETURN_IF_ERROR(check_target(plan.target));
  Conversion conversion;
  const auto start = std::chrono::steady_clock::now();
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source, ModelSource::open(path));
    RETURN_IF_ERROR(refuse_packed(*source));
    LoadOptions load;
    load.cache_dir = environment().cache_dir;
    load.threads = plan.flags.threads();
    if (plan.new_types) {
      ASSIGN_OR_RETURN(const std::unique_ptr<QuantizedSource> quantized,
                       QuantizedSource::make(*source, plan.target,
                                             {.type = plan.convert.type, .threads = plan.convert.threads}));
      RETURN_IF_ERROR(
          write_packed_model(*quantized, plan.target, load, quantized->change(), plan.convert.existing)
              .status());
      conversion = quantized->conversion();
    } else {
      RETURN_IF_ERROR(write_packed_model(*source, plan.target, load, "", plan.convert.existing).status());
    }
  }
  const double written_s = seconds_since(start);
  double opened_s = 0;
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, open_packed(plan, &opened_s));
  const uint64_t bytes = std::filesystem::file_size(plan.target);
  const std::string digest = model->source().packed()->digest;
  Result<ModelComparison> measured = not_measured();
  if (plan.new_types) RETURN_IF_ERROR(measure(plan, interrupt, &measured));
  if (plan.json) {
    boost::json::object o = {{"path", printable(plan.target, 2000)},
                             {"file_bytes", bytes},
                             {"packed_bytes", model->packed_bytes()},
                             {"of", printable(model->source().name(), 2000)},
                             {"model_digest", digest},
                             {"seconds", written_s},
                             {"seconds_to_open", opened_s}};
    if (plan.new_types) add_to(o, conversion, measured);
    fmt::print("{}\n", json_for_terminal(boost::json::serialize(o)));
    return {};
  }
  fmt::print("wrote       {} ({}) in {:.2f} s; it opens in {:.0f} ms\n",
             printable_within(plan.target, kShownBytes), size_text(bytes), written_s, 1e3 * opened_s);
  fmt::print("packed      {} of {}, digest {}\n", size_text(model->packed_bytes()),
             printable_within(model->source().name(), kShownBytes), digest);
  if (plan.new_types) print_text(conversion, plan.convert.type, measured);
  return {};
}

Status pack(Plan& plan) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, plan.flags.load_model());
  RETURN_IF_ERROR(refuse_packed(model->source()));
  if (model->packed_in_memory())
    return io_error("the cache cannot be written: the model would be packed again at each start");
  if (plan.json)
    fmt::print("{}\n", boost::json::serialize(boost::json::object{{"packed_bytes", model->packed_bytes()}}));
  else
    fmt::print("packed      {} in the cache, where each start finds them\n",
               size_text(model->packed_bytes()));
  return {};
}

// The name of the target says what it is.
Status check_name(const Plan& plan) {
  const bool gguf = plan.target.ends_with(".gguf"), packed = plan.target.ends_with(kPackedSuffix);
  const char* wrong = nullptr;
  if (plan.packed && !packed) wrong = "with --packed, the target must end in .packed";
  if (plan.to_mlx && gguf) wrong = "MLX-4 is written into a folder";
  if (!plan.packed && !plan.to_mlx && !gguf)
    wrong = packed ? "the target must end in .gguf; a packed model is written with --packed"
                   : "the target must end in .gguf";
  if (wrong == nullptr) return {};
  return invalid_argument(fmt::format("{}: {}", shown_value(plan.target), wrong));
}

Status convert(Plan& plan, Interrupt& interrupt) {
  if (plan.target.empty()) return pack(plan);
  if (plan.measure) RETURN_IF_ERROR(plan.text.check_text());
  if (plan.packed) return write_packed(plan, interrupt);
  Conversion conversion;
  {
    ASSIGN_OR_RETURN(const std::string path, plan.flags.model_path());
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source, ModelSource::open(path));
    RETURN_IF_ERROR(refuse_packed(*source));
    ASSIGN_OR_RETURN(conversion, plan.to_mlx ? convert_to_mlx(*source, plan.target,
                                                              {.threads = plan.convert.threads,
                                                               .existing = plan.convert.existing})
                                             : convert_model(*source, plan.target, plan.convert));
  }
  Result<ModelComparison> measured = not_measured();
  RETURN_IF_ERROR(measure(plan, interrupt, &measured));
  if (plan.json) {
    boost::json::object o = {{"path", printable(plan.target, 2000)}, {"file_bytes", conversion.file_bytes}};
    add_to(o, conversion, measured);
    fmt::print("{}\n", json_for_terminal(boost::json::serialize(o)));
    return {};
  }
  fmt::print("wrote       {} ({})\n", printable_within(plan.target, kShownBytes),
             size_text(conversion.file_bytes));
  print_text(conversion, plan.convert.type, measured);
  return {};
}

}  // namespace

int convert_verb(Arguments args) {
  Plan plan;
  std::vector<std::string> names, types;
  std::string type;
  bool overwrite = false, no_kl = false;
  for (const BlockEncoder& e : block_encoders())
    types.emplace_back(e.type);
  types.emplace_back(kMlx4);
  Flags flags("convert", "write a model in other tensor types, and measure what that costs");
  flags.example("invar convert model-bf16.gguf model-q4.gguf --type Q4_K", "with the KL against the source");
  flags.example("invar convert model-folder model.gguf",
                "config.json, safetensors and the tokenizer as one GGUF file");
  flags.example("invar convert model-folder mlx-folder --type MLX-4",
                "in MLX's layout, 4 bits in groups of 64");
  flags.example("invar convert model.gguf", "pack it now, which the first start would do");
  flags.example("invar convert model-folder model.packed --packed",
                "one file that needs no folder and no packing, for --model");
  flags.example("invar convert model.gguf model.packed --packed --type MLX-4",
                "the same in another type, of any model, with the KL against it");
  flags.rest(
      "SRC DST", &names,
      "SRC: a model as --model takes it; DST: the .gguf file to write, with --packed the .packed file, with "
      "--type MLX-4 the folder, none: the cache of packed weights");
  flags.section("Conversion");
  flags.choice("--type", &type, types,
               "of the matrices; vectors, norms, routers and, for a quantized type, what is smaller already "
               "stay (default: all stay)");
  flags.on("--packed", &plan.packed,
           "write a packed model, which starts at once: the same bits, or with --type its type");
  flags.on("--overwrite", &overwrite, "DST may exist");
  flags.on("--no-kl", &no_kl, "do not measure");
  flags.on("--json", &plan.json, "one JSON object on standard output");
  plan.text.declare(flags);
  plan.flags.declare(flags);
  flags.note(
      "What GGUF cannot say of a folder is refused by name; a packed model takes it. With a quantized type "
      "the output layer and the embedding have at least Q8_0, and rows that its blocks do not divide get "
      "Q8_0, else F16; with MLX-4 they get it, too, and rows that 64 does not divide stay. The figures are "
      "those of invar kl SRC DST.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (const Status s = plan.text.check(); !s.ok()) return fail_usage(s);
  if (plan.flags.names_model())
    return fail_usage(invalid_argument("the models stand without a flag: invar convert SRC DST"));
  if (names.empty() || names.size() > 2 || names[0].empty() || names.back().empty())
    return fail_usage(invalid_argument("give a source and a target: invar convert SRC DST"));
  plan.flags.set_model(names[0]);
  if (plan.packed && !plan.flags.rope().empty())
    return fail_usage(
        invalid_argument("--packed keeps the positions of the source; give --rope-base and "
                         "--rope-scaling where the file is used"));
  if (names.size() == 2) {
    plan.target = names[1];
    plan.to_mlx = type == kMlx4 && !plan.packed;
    if (const Status s = check_name(plan); !s.ok()) return fail_usage(s);
    std::error_code ec;
    const bool empty_folder = plan.to_mlx && std::filesystem::is_directory(plan.target, ec) &&
                              std::filesystem::is_empty(plan.target, ec);
    if (!overwrite && !empty_folder && std::filesystem::exists(plan.target, ec))
      return fail_usage(invalid_argument(
          fmt::format("{}: exists; give --overwrite or another name", shown_value(plan.target))));
  } else {
    for (const auto& [given, flag] : {std::pair{plan.packed, "--packed"},
                                      {!type.empty(), "--type"},
                                      {overwrite, "--overwrite"},
                                      {no_kl, "--no-kl"}})
      if (given)
        return fail_usage(invalid_argument(
            fmt::format("{} is about a file: name the target, invar convert SRC DST", flag)));
  }
  plan.new_types = !type.empty();
  if (plan.new_types) plan.convert.type = find_encoder(type);
  plan.convert.threads = plan.flags.threads();
  // Not even where somebody makes it while we convert.
  plan.convert.existing = overwrite ? Existing::kReplaced : Existing::kKept;
  plan.measure = !no_kl && (!plan.packed || plan.new_types);

  Interrupt interrupt;  // without a handler: ends at once, and takes unfinished files along
  if (const Status s = convert(plan, interrupt); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
