// SPDX-License-Identifier: Apache-2.0
// Documents of tables: the texts of one column, batch by batch. Formats differ in where the batches
// come from.
#pragma once

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/type.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/record_documents.h"

namespace tessera {

// Returns the value of a result. Error that begins with `where` if it failed.
template <typename T>
T value_of(arrow::Result<T> result, const std::string& where) {
  if (!result.ok()) fail("{}: {}", where, result.status().message());
  return std::move(result).ValueUnsafe();
}

// A file of Arrow's library that reads one of our byte sources.
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

// The position of a column in a schema: its index, and below it those of members of structs.
using ColumnPath = std::vector<int>;

class ColumnDocuments : public RecordDocuments {
 public:
  ColumnDocuments(const DocumentFormat& format, std::unique_ptr<ByteSource> source,
                  const ReadOptions& options);

 protected:
  // Returns the next batch; null at the end.
  virtual std::shared_ptr<arrow::RecordBatch> next_batch() = 0;
  // Moves to the batch that has the row at ShardPosition::offset, or to one before it. Returns the
  // first row of the next batch.
  virtual int64_t seek_batch(int64_t row) = 0;

  // Returns the column that the options name. Error if it is missing or has no texts.
  ColumnPath find_column(const arrow::Schema& schema) const;
  // The column in the batches; set by the constructors of formats.
  void set_column(ColumnPath path) { path_ = std::move(path); }

  std::optional<Record> read_record(int64_t number) final;
  bool skip_record() final { return has_row() && ++row_ > 0; }
  int64_t offset() const final { return first_row_ + row_; }
  void seek_record(const ShardPosition& position) final;
  const std::string& where() const final { return source_->where(); }
  ByteSource& source() const { return *source_; }
  SourceFile& file() const { return *file_; }
  std::shared_ptr<SourceFile> shared_file() const { return file_; }

 private:
  bool has_row();  // Reads batches until one has the next row; false at the end.

  std::unique_ptr<ByteSource> source_;
  std::shared_ptr<SourceFile> file_;
  ColumnPath path_;
  std::shared_ptr<arrow::Array> column_;  // The texts of a batch; null at first.
  int64_t first_row_ = 0;                 // The number of the first row of the batch.
  int64_t row_ = 0;                       // The next row in the batch.
};

}  // namespace tessera
