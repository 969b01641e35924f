#pragma once
// Types whose scales lie in tensors of their own (source_planes.h): one function per layout of codes. Columns
// [col, col + cols) of a row, col and cols multiples of 32, cols at most 256. Any bytes are valid; layouts in
// docs/formats.md.

#include <cstdint>

#include "format/source_planes.h"
#include "format/weight_type.h"

namespace invar {

// MLX affine: codes of `bits` in a stream per row, a scale and a bias of 16 bits per group.
template <int bits, bool bf16>
void unpack_affine(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);
void unpack_mlx_mxfp4(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);
void unpack_mlx_nvfp4(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);
// GGUF's blocks of NVFP4, with factors beside them.
void unpack_nvfp4_rows(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);
// GPTQ and AWQ, 4 bits: codes already less their zero point, plus 8 (symmetric files) or plus 16. Columns of
// GPTQ are those of the packed order.
void unpack_gptq_symmetric(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);
void unpack_gptq(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);
void unpack_awq(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);

// E4M3 with one scale for all columns asked for.
void unpack_mlx_mxfp8(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);
void unpack_fp8(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out);

}  // namespace invar
