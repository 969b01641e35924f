#pragma once
// KernelTable: one instruction set's kernels, a struct of function pointers chosen once at start. All sets
// give the same bits (docs/numerics.md); the scalar set is the specification. Kernels are pure functions on
// borrowed memory, callable from any thread; every thread that calls them runs with MXCSR = 0x1F80 (FTZ, DAZ
// off; nearest even). A fault flag is set to 1 (never cleared) where a row meets NaN or infinity.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kv/codec.h"
#include "kv/kv_run.h"
#include "tensor/packed.h"
#include "tensor/row_kernels.h"

namespace invar {

// ---- Activations of quantized linear layers, one row (numerics 2): int8 codes per 32 with an fp32 scale.
// Layout in bytes: int8 codes[cols], f32 scale[cols/32], f32 scaled_sum[cols/32] (RN(scale * sum of the 32
// codes)), i16 sum16[cols/16] (sums of codes per 16).
constexpr size_t quantized_row_bytes(int64_t cols) {
  return round_up(cols + cols / 32 * 8 + cols / 16 * 2, 64);
}

struct LinearInput {
  int64_t rows;
  const float* x;  // [rows, cols], stride x_stride floats; read by float forms
  int64_t x_stride;
  const std::byte* q;  // quantized rows, stride q_stride bytes, 64-byte aligned; read by quantized forms
  size_t q_stride;
};
struct LinearOutput {
  float* y;  // [rows, channels], stride y_stride floats; channel n of the matrix at y[row * stride + n]
  int64_t y_stride;
  const float* bias;  // [channels] or nullptr: y = acc + bias
  bool add_to_y;      // residual: y = y + (acc + bias), each sum rounded
};

// ---- Attention of consecutive rows of one sequence (numerics 5).
inline constexpr int kSplitTokens = 256;
struct AttendArgs {
  const float* q;  // [rows, heads, head_dim], stride q_stride floats between rows
  int64_t q_stride;
  float* out;  // [rows, heads, head_dim], stride out_stride
  int64_t out_stride;
  int32_t rows;
  int32_t first_position;  // of row 0; row r sits at first_position + r
  int32_t heads;           // query heads, a multiple of the layout's kv_heads
  float scale;
  const KvView* kv;
  int32_t layer;                 // inside the group
  uint8_t* faults;               // [rows]
  float softcap = 0;             // > 0: s = softcap * tanh(s / softcap)
  const float* sinks = nullptr;  // [heads]: scores without a position and a value
};
// Partial result of one split: per (row, query head of the KV head) f32 [head_dim + 2]: O, then m, then l.
constexpr int64_t partial_floats(int head_dim) {
  return head_dim + 2;
}

enum class Unary : uint8_t { kExp, kSigmoid, kSilu, kTanh, kSoftplus, kGeluTanh, kErf, kGeluErf, kCount };
const char* unary_name(Unary f);

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx512", ...

  // ---- linear layers
  void (*quantize_row)(const float* x, int64_t cols, std::byte* out, uint8_t* fault);
  // Channels of tiles [tile_begin, tile_end) for all rows. Never writes beyond channel w.rows.
  void (*linear)(const PackedMatrix& w, int64_t tile_begin, int64_t tile_end, const LinearInput& in,
                 const LinearOutput& out);
  // The instructions of dot products on registers alone, of integers and of floats, that many rounds of them:
  // what no kernel of the set can beat. Return the multiply-adds done.
  int64_t (*dot_peak)(int64_t rounds);
  int64_t (*fma_peak)(int64_t rounds);
  // Row `row` of a packed matrix as fp32 [cols]: fma(scale, code - zp, bias).
  void (*unpack_row)(const PackedMatrix& w, int64_t row, float* out);

  // ---- element-wise and row functions, n floats
  // weight nullptr: none.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y, uint8_t* fault);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y,
                     uint8_t* fault);
  void (*add)(const float* x, const float* y, int64_t n, float* out);
  void (*gated_silu)(const float* gate, const float* up, int64_t n, float* out);
  void (*gated_gelu)(const float* gate, const float* up, int64_t n, float* out);  // tanh form
  // g = min(gate, limit), u = up within +-limit: g * sigmoid(alpha * g) * (u + 1)
  void (*gated_clamped)(const float* gate, const float* up, float alpha, float limit, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*multiply)(const float* x, const float* weight, int64_t n, float* out);
  void (*add_scaled)(const float* x, const float* y, float factor, int64_t n, float* out);  // x + factor * y
  // x with the root mean square of `like`; that of x is taken as at least the root of least_mean_square.
  void (*match_rms)(const float* x, const float* like, float least_mean_square, int64_t n, float* out,
                    uint8_t* fault);
  // max(0, x - (mean + deviations * standard deviation)).
  void (*sparsify)(const float* x, float deviations, int64_t n, float* out, uint8_t* fault);
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
  void (*unary[size_t(Unary::kCount)])(const float* x, int64_t n, float* y);
  RowKernels rows;

  // ---- rope: cos, sin [dim/2] of one position; then heads x [heads, head_dim], pairs (i, i + dim/2)
  void (*rope_table)(const float* inv_freq, int dim, int32_t position, float attention_factor, bool scaled,
                     float* cos, float* sin);
  void (*rope)(float* x, int heads, int head_dim, int dim, const float* cos, const float* sin);
  // The same with pairs (2i, 2i + 1).
  void (*rope_adjacent)(float* x, int heads, int head_dim, int dim, const float* cos, const float* sin);

  // ---- KV, by codec index; nullptr where a codec is not supported
  // Writes one token's k, v [kv_heads, head_dim] of a layer into its slot.
  void (*kv_write[kMaxKvCodecs])(const KvView& kv, int layer, int32_t position, const float* k,
                                 const float* v, uint8_t* fault);
  // All query heads of kv_head for rows [row_begin, row_end), over the whole context. scratch: attend_scratch
  // bytes.
  void (*attend[kMaxKvCodecs])(const AttendArgs& args, int kv_head, int row_begin, int row_end,
                               std::byte* scratch);
  // The same for one split (positions [256*split, 256*split + 256)), result in partial[rows, heads/kv_heads,
  // head_dim+2].
  void (*attend_split[kMaxKvCodecs])(const AttendArgs& args, int kv_head, int row_begin, int row_end,
                                     int split, float* partial, std::byte* scratch);
  size_t (*attend_scratch)(int rows, int heads_per_kv_head, int head_dim);
  // Combines splits ascending and writes out. partial: [splits][row_end - row_begin][heads/kv_heads][head_dim
  // + 2].
  void (*attend_combine)(const AttendArgs& args, int kv_head, int row_begin, int row_end, int splits,
                         const float* partial);
};

// The sets compiled into this binary, best last: "scalar-portable", "scalar", "avx2", "avx512".
std::span<const KernelTable* const> kernel_tables();
bool cpu_supports(const KernelTable& table);
// By name, or the best one for nullptr / "". nullptr if unknown or not supported by this CPU ("scalar" falls
// back to "scalar-portable" where there is no FMA).
const KernelTable* choose_kernels(std::string_view name);

}  // namespace invar
