#pragma once
// NpyWriter: a float32 matrix [rows, cols] in NumPy's file format (version 1.0, little endian), written row
// by row into a NewFile of --out. Owned by one thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "cli/new_file.h"

namespace invar {

class NpyWriter {
 public:
  static Result<NpyWriter> create(const std::string& path, int64_t rows, int64_t cols);

  Status append(std::span<const float> row);  // [cols]
  Status finish();                            // all rows are there

 private:
  NpyWriter(std::string path, int64_t rows, int64_t cols)
      : file_(std::make_unique<NewFile>(std::move(path), "--out")), rows_(rows), cols_(cols) {}

  std::unique_ptr<NewFile> file_;
  int64_t rows_, cols_, written_ = 0;
};

}  // namespace invar
