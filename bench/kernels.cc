// bench_kernels: time of linear layers per form, shape, rows, instruction set and threads, beside the stream
// bandwidth of this machine measured in the same run. Weights rotate through more memory than any cache
// holds, so one row reads them from memory as decoding does. Medians of several runs; a plain table.
//   bench_kernels [--forms u4b,u4z8] [--shapes 4096x4096,1536x576] (output channels x K) [--rows 1,4,128]
//                 [--sets avx2] [--threads 1,2] [--runs 7] [--megabytes 512] [--tile-us 60]
//                 [--seconds 0.05] [--check 1]
// --check 1: the results must be those of the scalar-portable set, bit for bit, or the exit code is 1. With
// --forms all and --sets all, every form and every set that this CPU has.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cli/benchmark/machine_limits.h"
#include "cli/benchmark/time_runs.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"

namespace invar {
namespace {

struct Options {
  std::vector<std::string> forms = {"u4b", "u4z8", "u8z128", "u6k"};
  std::vector<std::string> shapes = {"4096x4096", "1536x576", "576x1536", "576x576"};
  std::vector<std::string> rows = {"1", "2", "4", "8", "16", "32", "128", "512"};
  std::vector<std::string> sets = {""};
  std::vector<std::string> threads = {"1", "2"};
  int runs = 7, megabytes = 512;
  double tile_us = 60;    // work claimed at a time, as the engine does
  double seconds = 0.05;  // that a run takes, by a guess
  bool check = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

int usage(const char* what) {
  fmt::print(stderr, "bench_kernels: {}; see the head of bench/kernels.cc for the flags\n", what);
  return 2;
}

// Random codes, and small scales of as many bits as the forms promise; a float tile gets small ordinary
// numbers.
void fill_weights(const PackedMatrix& w, std::byte* data) {
  const PackedForm& form = *w.form;
  const size_t bytes = w.bytes();
  std::mt19937_64 rng(1);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t v = rng();
    std::memcpy(data + i, &v, 8);
  }
  const auto small = [&] { return f16_to_f32(f32_to_f16(0.002f + float(rng() % 100) * 1e-5f)); };
  if (is_float(form) && form.dtype != Dtype::kE4M3) {
    for (size_t i = 0; i < bytes; i += dtype_bytes(form.dtype)) {
      const float x = float(int(rng() % 200) - 100) * 0.001f;
      const uint16_t h = form.dtype == Dtype::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
      std::memcpy(data + i, form.dtype == Dtype::kF32 ? static_cast<const void*>(&x) : &h,
                  dtype_bytes(form.dtype));
    }
    return;
  }
  for (int64_t tile = 0; tile < tile_count(w.rows); ++tile) {
    std::byte* p = data + size_t(tile) * w.tile_size();
    for (int64_t k = 0; k < w.cols;) {
      const int64_t now = std::min<int64_t>(is_float(form) ? form.group : kRecordCols, w.cols - k);
      for (int c = 0; c < kTileRows && (is_float(form) || form.scale == ScaleKind::kF32xS8); ++c) {
        const float s = small();
        std::memcpy(p + 4 * c, &s, 4);
      }
      const size_t halves = is_float(form) || form.scale == ScaleKind::kF32xS8 ? 0
                            : has_half_scales(form) ? scale_area_bytes(form, now) / 2
                                                    : 32;
      for (size_t i = 0; i < halves; ++i) {
        const uint16_t h = form.scale == ScaleKind::kBF16 ? f32_to_bf16(small()) : f32_to_f16(small());
        std::memcpy(p + 2 * i, &h, 2);
      }
      if (is_float(form)) {
        for (int64_t i = 0; i < now * kTileRows; ++i)  // no NaN
          p[64 + i] &= std::byte{0xBF};
      }
      p += is_float(form) ? size_t(64 + now * kTileRows) : record_bytes(form, now);
      k += now;
    }
    for (int c = 0; c < kTileRows && form.factors; ++c) {
      const float factor = 0.5f + float(c) * 0.01f;
      std::memcpy(p + 4 * c, &factor, 4);
    }
  }
}

// Tiles per claim: about tile_us of work at a guessed 80 G operations or 8 GB per second and thread.
int64_t tiles_per_claim(const PackedMatrix& w, int64_t rows, double tile_us) {
  const double operations = 2.0 * kTileRows * double(w.cols) * double(rows) / 80e9;
  const double bytes = double(w.tile_size()) / 8e9;
  return std::max<int64_t>(1, int64_t(tile_us * 1e-6 / std::max(operations, bytes)));
}

// Whether `set` gives what the scalar-portable set gives, from activations to results.
bool same_bits(const KernelTable& set, const PackedMatrix& w, const Buffer& x, int64_t rows) {
  const auto results = [&](const KernelTable& table) {
    const size_t q_stride = quantized_row_bytes(w.cols);
    Buffer q(q_stride * size_t(rows)), y(size_t(rows * w.rows) * 4);
    uint8_t fault = 0;
    for (int64_t r = 0; r < rows && !is_float(*w.form); ++r)
      table.quantize_row(x.as<float>() + r * w.cols, w.cols, q.data() + size_t(r) * q_stride, &fault);
    table.linear(w, 0, tile_count(w.rows), {rows, x.as<float>(), w.cols, q.data(), q_stride},
                 {y.as<float>(), w.rows, nullptr, false});
    return y;
  };
  const Buffer ours = results(set), wanted = results(*choose_kernels("scalar-portable"));
  return std::memcmp(ours.data(), wanted.data(), wanted.size()) == 0;
}

struct Case {
  const KernelTable* set;
  const PackedForm* form;
  int64_t channels, cols, rows;
};

bool run_case(const Case& c, ThreadPool& pool, Buffer& memory, const Options& options, double stream) {
  PackedMatrix w{c.form, c.channels, c.cols, memory.data()};
  const size_t stride = round_up(w.bytes(), 64);
  const int64_t copies = std::max<int64_t>(1, int64_t(memory.size() / stride));
  fill_weights(w, memory.data());
  for (int64_t i = 1; i < copies; ++i)
    std::memcpy(memory.data() + size_t(i) * stride, memory.data(), w.bytes());

  Buffer x(size_t(c.rows * c.cols) * 4), y(size_t(c.rows * c.channels) * 4);
  const size_t q_stride = quantized_row_bytes(c.cols);
  Buffer q(q_stride * size_t(c.rows));
  std::mt19937 rng(2);
  for (int64_t i = 0; i < c.rows * c.cols; ++i)
    x.as<float>()[i] = float(int(rng() % 2001) - 1000) * 0.002f;
  uint8_t fault = 0;
  if (!is_float(*c.form)) {
    for (int64_t r = 0; r < c.rows; ++r) {
      c.set->quantize_row(x.as<float>() + r * c.cols, c.cols, q.data() + size_t(r) * q_stride, &fault);
    }
  }
  const LinearInput in{c.rows, x.as<float>(), c.cols, q.data(), q_stride};
  const LinearOutput out{y.as<float>(), c.channels, nullptr, false};
  const int64_t tiles = tile_count(c.channels), step = tiles_per_claim(w, c.rows, options.tile_us);
  const double guess = std::max(2.0 * double(c.channels * c.cols * c.rows) / 100e9, double(w.bytes()) / 10e9);
  const int64_t calls = std::clamp<int64_t>(int64_t(options.seconds / guess), 1, 4096);
  int64_t copy = 0;
  const Timing t = time_runs(options.runs, [&] {
    for (int64_t i = 0; i < calls; ++i) {
      w.data = memory.data() + size_t(copy++ % copies) * stride;
      pool.run((tiles + step - 1) / step, [&](int64_t claim, int) {
        c.set->linear(w, claim * step, std::min(tiles, (claim + 1) * step), in, out);
      });
    }
  });
  const double seconds = t.median / double(calls), best = t.best / double(calls);
  const double bytes = double(w.bytes()), operations = 2.0 * double(c.channels * c.cols * c.rows);
  fmt::print(
      "{:<16} {:<7} {:>6}x{:<6} {:>5} {:>3} {:>10.4f} {:>10.4f} {:>8.1f} {:>8.1f} {:>8.0f} {:>5.0f}%\n",
      c.set->name, c.form->name, c.channels, c.cols, c.rows, pool.threads(), seconds * 1e3, best * 1e3,
      bytes / seconds / 1e9, bytes / best / 1e9, operations / seconds / 1e9, bytes / seconds / 1e7 / stream);
  std::fflush(stdout);
  if (!options.check || same_bits(*c.set, w, x, c.rows)) return true;
  fmt::print(stderr, "bench_kernels: {} {} {}x{}, {} rows: not the bits of scalar-portable\n", c.set->name,
             c.form->name, c.channels, c.cols, c.rows);
  return false;
}

int run(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--forms")
      o.forms = split(value);
    else if (flag == "--shapes")
      o.shapes = split(value);
    else if (flag == "--rows")
      o.rows = split(value);
    else if (flag == "--sets")
      o.sets = split(value);
    else if (flag == "--threads")
      o.threads = split(value);
    else if (flag == "--runs")
      o.runs = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--megabytes")
      o.megabytes = std::max(8, std::atoi(value.c_str()));
    else if (flag == "--tile-us")
      o.tile_us = std::atof(value.c_str());
    else if (flag == "--seconds")
      o.seconds = std::atof(value.c_str());
    else if (flag == "--check")
      o.check = value != "0";
    else
      return usage("unknown flag");
  }
  if (argc % 2 == 0) return usage("a flag lacks its value");
  if (o.forms == std::vector<std::string>{"all"}) {
    o.forms.clear();
    for (const PackedForm& form : kPackedForms)
      if (!form.gathered) o.forms.emplace_back(form.name);  // the same kernel on rows in another order
  }
  if (o.sets == std::vector<std::string>{"all"}) {
    o.sets.clear();
    for (const KernelTable* set : kernel_tables())
      o.sets.emplace_back(set->name);
  }
  bool same = true;
  Buffer memory(size_t(o.megabytes) << 20);
  std::memset(memory.data(), 1, memory.size());
  for (const std::string& threads : o.threads) {
    ThreadPool pool({.threads = std::max(1, std::atoi(threads.c_str()))});
    const double stream = stream_gb_per_s(pool, memory, o.runs);
    fmt::print("\nstream, {} threads: {:.1f} GB/s\n", pool.threads(), stream);
    fmt::print("{:<16} {:<7} {:>13} {:>5} {:>3} {:>10} {:>10} {:>8} {:>8} {:>8} {:>6}\n", "set", "form",
               "channels x K", "rows", "thr", "median ms", "best ms", "GB/s", "best", "GOPS", "stream");
    for (const std::string& set_name : o.sets) {
      const KernelTable* set = choose_kernels(set_name);
      if (!set) {
        fmt::print("{:<16} NOT RUN: not on this CPU\n", set_name);
        continue;
      }
      fmt::print("{:<16} dot products on registers: {:.0f} GOPS\n", set->name,
                 2 * peak_gmacs_per_s(pool, set->dot_peak, o.runs));
      for (const std::string& form_name : o.forms) {
        const PackedForm* form = find_packed_form(form_name.c_str());
        if (!form) return usage("unknown form");
        for (const std::string& shape : o.shapes) {
          long long channels = 0, cols = 0;
          if (std::sscanf(shape.c_str(), "%lldx%lld", &channels, &cols) != 2) return usage("a shape is NxK");
          const int64_t unit = is_float(*form) ? 1 : has_half_scales(*form) ? 32 : 256;
          cols = int64_t(round_up(size_t(cols), size_t(unit)));
          for (const std::string& rows : o.rows) {
            same &= run_case({set, form, channels, cols, std::max(1, std::atoi(rows.c_str()))}, pool, memory,
                             o, stream);
          }
        }
      }
    }
  }
  return same ? 0 : 1;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  return invar::run(argc, argv);
}
