// make_cpu_backend: chooses the instruction set, starts the threads.

#include <fmt/format.h>

#include "backends/backend.h"
#include "backends/cpu/executor.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace invar {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, int threads) : kernels_(kernels), pool_({.threads = threads}) {}

  std::string name() const override {
    return fmt::format("cpu/{}, {} thread{}", kernels_.name, pool_.threads(),
                       pool_.threads() == 1 ? "" : "s");
  }

  bool supports(const KvCodec& codec) const override {
    return codec.index >= 0 && codec.index < kMaxKvCodecs && kernels_.kv_write[codec.index] != nullptr &&
           kernels_.attend[codec.index] != nullptr && kernels_.attend_split[codec.index] != nullptr;
  }

  const RowKernels& row_kernels() const override { return kernels_.rows; }
  int threads() const override { return pool_.threads(); }
  void run_tasks(int64_t tasks, FunctionRef<void(int64_t task, int thread)> fn) override {
    pool_.run(tasks, fn);
  }

  Result<std::unique_ptr<Executable>> compile(const Graph& graph, const WeightSet& weights,
                                              const ExecutableLimits& limits) override {
    ASSIGN_OR_RETURN(std::unique_ptr<CpuExecutable> made,
                     CpuExecutable::make(graph, weights, limits, kernels_, cost_model(kernels_.name), pool_));
    return std::unique_ptr<Executable>(std::move(made));
  }

 private:
  const KernelTable& kernels_;
  ThreadPool pool_;
};

Status unknown_isa(const std::string& isa) {
  std::string usable, lacking;
  bool is_known = false;
  for (const KernelTable* table : kernel_tables()) {
    std::string& list = cpu_supports(*table) ? usable : lacking;
    list += (list.empty() ? "" : ", ") + std::string(table->name);
    is_known |= isa == table->name;
  }
  const std::string rest = lacking.empty() ? "" : fmt::format("; this CPU lacks {}", lacking);
  return {is_known ? Code::kUnsupported : Code::kInvalidArgument,
          is_known
              ? fmt::format("instruction set '{}': this CPU does not have it; choose one of {}", isa, usable)
              : fmt::format("instruction set '{}' is unknown; choose one of {}{}", isa, usable, rest)};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return invalid_argument(
        fmt::format("threads: {} is not between 0 (every core) and {}", options.threads, kMaxThreads));
  }
  const KernelTable* kernels = choose_kernels(options.isa);
  if (kernels == nullptr) return unknown_isa(options.isa);
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(*kernels, options.threads));
}

}  // namespace invar
