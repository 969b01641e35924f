#pragma once
// What `invar bench` found, for people and for scripts.

#include "cli/benchmark/cases.h"
#include "cli/benchmark/machine_limits.h"
#include "cli/benchmark/profile.h"
#include "cli/machine.h"
#include "models/model.h"

namespace invar {

// Where the time of a case's steps goes.
struct CaseProfile {
  std::string name;  // of the case
  int64_t steps = 0;
  double step_s = 0;  // on average
  double bytes_per_step = 0, outside_share = 0;
  std::vector<PhaseTime> phases;
};

struct BenchReport {
  Machine machine;
  std::string backend;  // "cpu/avx2, 2 threads"
  std::string kv;
  int32_t context = 0;
  std::vector<BenchCase> cases;
  std::string left_out;               // cases that do not fit into the context
  double load_s = 0;                  // from the start of the verb to an engine that can take requests
  double first_token_s = 0;           // to the first token of a prompt of one
  Residence residence;                // after the first round
  double foreign_cores = 0;           // kept busy by other processes meanwhile
  MachineLimits limits;               // with the same threads
  double decode_bytes = 0;            // that a step of one sequence reads at depth 0; 0: not measured
  std::vector<CaseProfile> profiles;  // --profile
};

void print_bench_text(const BenchReport& report, const Model& model);
void print_bench_json(const BenchReport& report, const Model& model);

}  // namespace invar
