// SPDX-License-Identifier: Apache-2.0
// A file of Arrow's library that reads one of our byte sources.
#pragma once

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "inputs/readers/byte_source.h"

namespace tessera {

// Returns the value of a result. Error that begins with `where` if it failed.
template <typename T>
T value_of(arrow::Result<T> result, const std::string& where) {
  if (!result.ok()) fail("{}: {}", where, result.status().message());
  return std::move(result).ValueUnsafe();
}

class SourceFile final : public arrow::io::RandomAccessFile {
 public:
  explicit SourceFile(ByteSource& source) : source_(source) {}  // `source` must outlive it.

  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return is_closed_; }
  arrow::Result<int64_t> Tell() const override { return at_; }
  arrow::Result<int64_t> GetSize() override { return source_.size(); }
  arrow::Status Seek(int64_t position) override {
    try {
      source_.seek(position);
    } catch (const std::exception& error) {
      return arrow::Status::IOError(error.what());
    }
    at_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Read(int64_t size, void* into) override {
    int64_t have = 0;
    try {
      while (have < size) {
        const size_t got =
            source_.read(static_cast<char*>(into) + have, static_cast<size_t>(size - have));
        has_ended_ = got == 0;
        if (got == 0) break;
        have += static_cast<int64_t>(got);
      }
    } catch (const std::exception& error) {
      return arrow::Status::IOError(error.what());
    }
    at_ += have;
    return have;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(size));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, Read(size, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(got));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  bool has_ended() const { return has_ended_; }  // The last read reached the end of the source.

 private:
  ByteSource& source_;
  int64_t at_ = 0;
  bool is_closed_ = false;
  bool has_ended_ = false;
};

}  // namespace tessera
