#pragma once
// NpyWriter: a float32 matrix [rows, cols] in NumPy's file format (version 1.0, little endian), written row
// by row under a temporary name beside the target and renamed by finish(), so that the target is never half a
// file. Owned by one thread. Errors name the file and what the operating system said.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace invar {

class NpyWriter {
 public:
  static Result<NpyWriter> create(const std::string& path, int64_t rows, int64_t cols);
  NpyWriter(NpyWriter&&) noexcept;
  NpyWriter& operator=(NpyWriter&&) = delete;
  ~NpyWriter();  // removes the temporary file unless finished

  Status append(std::span<const float> row);  // [cols]
  Status finish();                            // all rows are there

 private:
  NpyWriter(std::string path, int64_t rows, int64_t cols)
      : path_(std::move(path)), rows_(rows), cols_(cols) {}
  Status failed(const char* what) const;

  std::string path_, temporary_;
  int64_t rows_, cols_, written_ = 0;
  std::FILE* file_ = nullptr;
};

}  // namespace invar
