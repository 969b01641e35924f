#pragma once
// Rows of a stored matrix as f32, whatever way the source keeps them: blocks, codes with their scales in
// tensors of their own, or floats of a transposed matrix. Pure functions, for any thread.

#include <cstdint>

#include "format/model_source.h"
#include "graph/graph.h"

namespace invar {

// A stored tensor as one matrix: the rows of all experts of a stack, one expert after the other.
struct StoredMatrix {
  const SourceTensor* tensor;
  int64_t rows, cols;       // rows of one expert
  bool transposed = false;  // the tensor has each expert's as [cols, rows]
};

// The tensor that holds a weight, which must have been audited against it.
StoredMatrix stored_matrix(const Weight& weight, const SourceTensor& tensor);

// Where row `row` of a weight lies among the rows of the tensor that holds it.
int64_t stored_row(const Weight& weight, int64_t row);

// That row, matrix.cols numbers.
void read_row(const StoredMatrix& matrix, int64_t stored_row, float* out);

// Bytes of a stored tensor, scales that lie elsewhere along.
uint64_t source_bytes(const SourceTensor& tensor);

// The type that holds what read_row() gives without loss: the tensor's own where GGUF has it, else F32 or, of
// MXFP4, GGUF's.
const WeightType& lossless_type(const SourceTensor& tensor);

// Row `row` of a matrix with planes of MXFP4 as GGUF's blocks.
void copy_mxfp4_row(const SourcePlanes& planes, const WeightType& type, int64_t row, std::byte* out);

}  // namespace invar
