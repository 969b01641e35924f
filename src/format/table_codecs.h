#pragma once
// Block types whose codes are indices into a table (tensor/packed.h), and the ternary ones. As
// block_codecs.h.

#include <cstddef>

#include "format/weight_type.h"

namespace invar {

void unpack_mxfp4(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_nvfp4(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq4_nl(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq4_xs(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq2_xxs(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq2_xs(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq2_s(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq3_xxs(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq3_s(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq1_s(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_iq1_m(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_tq1_0(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_tq2_0(const std::byte* source, int blocks, UnpackedBlock* out);

}  // namespace invar
