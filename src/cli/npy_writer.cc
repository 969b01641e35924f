#include "cli/npy_writer.h"

#include <fmt/format.h>

#include <bit>

#include "base/check.h"

namespace invar {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

Result<NpyWriter> NpyWriter::create(const std::string& path, int64_t rows, int64_t cols) {
  NpyWriter writer(path, rows, cols);
  RETURN_IF_ERROR(writer.file_->open());

  // Magic, version, u16 length, then a Python dict padded with blanks so that the data starts at a multiple
  // of 64.
  std::string head =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  head.append(63 - (10 + head.size()) % 64, ' ');
  head += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(head.size() & 255);
  prefix += static_cast<char>(head.size() >> 8);
  prefix += head;
  RETURN_IF_ERROR(writer.file_->write(prefix));
  return writer;
}

Status NpyWriter::append(std::span<const float> row) {
  CHECK(int64_t(row.size()) == cols_ && written_ < rows_);
  RETURN_IF_ERROR(file_->write(std::as_bytes(row)));
  ++written_;
  return {};
}

Status NpyWriter::finish() {
  CHECK(written_ == rows_);
  return file_->finish();
}

}  // namespace invar
