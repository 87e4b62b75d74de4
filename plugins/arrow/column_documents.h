// SPDX-License-Identifier: Apache-2.0
// Documents of tables: the texts of one column, batch by batch. Formats differ in where the batches
// come from.
#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inputs/readers/record_documents.h"
#include "plugins/arrow/source_file.h"

namespace tessera {

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
