// SPDX-License-Identifier: Apache-2.0
// Documents of Parquet: reads the pages of one column only, row group by row group.
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "plugins/arrow/column_documents.h"

namespace tessera {
namespace {

extern const DocumentFormat kParquet;

constexpr int64_t kBatchRows = 512, kBatchBytes = 1 << 20;  // The most in a batch.
constexpr int64_t kPageBuffer = 1 << 20;

class ParquetDocuments final : public ColumnDocuments {
 public:
  ParquetDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : ColumnDocuments(kParquet, std::move(source), options) {
    guarded([&] { open(); });
  }

  // By rows: the footer at the end of the file is read first.
  int64_t bytes_read() const override {
    const int64_t rows = std::max<int64_t>(1, metadata().num_rows());
    return static_cast<int64_t>(static_cast<double>(source().size()) *
                                static_cast<double>(offset()) / static_cast<double>(rows));
  }

 protected:
  std::shared_ptr<arrow::RecordBatch> next_batch() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    guarded([&] {
      for (;;) {
        if (rows_ != nullptr) batch = value_of(rows_->Next(), where());
        if (batch != nullptr) left_ -= batch->num_rows();
        if (batch != nullptr && left_ >= 0) return;
        if (left_ != 0) fail("{}: damaged: row group {} has other rows", where(), group_ - 1);
        if (group_ == metadata().num_row_groups()) return;
        const auto group = metadata().RowGroup(group_);
        left_ = group->num_rows();
        const int64_t row_bytes =
            group->ColumnChunk(leaf_)->total_uncompressed_size() / std::max<int64_t>(1, left_);
        reader_->set_batch_size(
            std::clamp<int64_t>(kBatchBytes / std::max<int64_t>(1, row_bytes), 1, kBatchRows));
        rows_ = value_of(reader_->GetRecordBatchReader({group_++}, {leaf_}), where());
      }
    });
    return batch;
  }

  int64_t seek_batch(int64_t row) override {
    rows_ = nullptr;
    left_ = 0;
    int64_t first = 0;
    for (group_ = 0; group_ < metadata().num_row_groups(); ++group_) {
      const int64_t size = metadata().RowGroup(group_)->num_rows();
      if (first + size > row) break;
      first += size;
    }
    return first;
  }

 private:
  // The library throws, too.
  template <typename Function>
  void guarded(const Function& function) const {
    try {
      function();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail("{}: {}", where(), error.what());
    }
  }

  void open() {
    parquet::ReaderProperties read;
    read.enable_buffered_stream();  // Pages, not whole columns of row groups.
    read.set_buffer_size(kPageBuffer);
    read.set_page_checksum_verification(true);  // Where a page has one.
    parquet::ArrowReaderProperties convert(/*use_threads=*/false);
    convert.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    const arrow::Status opened = builder.Open(shared_file(), read);
    if (!opened.ok()) fail("{}: {}", where(), opened.message());
    builder.properties(convert);
    reader_ = value_of(builder.Build(), where());
    std::shared_ptr<arrow::Schema> schema;
    const arrow::Status found = reader_->GetSchema(&schema);
    if (!found.ok()) fail("{}: {}", where(), found.message());
    const ColumnPath path = find_column(*schema);
    const parquet::arrow::SchemaField* field =
        &reader_->manifest().schema_fields[static_cast<size_t>(path[0])];
    for (size_t i = 1; i < path.size(); ++i) field = &field->children[static_cast<size_t>(path[i])];
    leaf_ = field->column_index;
    set_column(ColumnPath(path.size(), 0));  // Batches have nothing else.
  }

  const parquet::FileMetaData& metadata() const { return *reader_->parquet_reader()->metadata(); }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  int leaf_ = 0;                                    // The column, counted in Parquet's way.
  int group_ = 0;                                   // The next row group.
  std::unique_ptr<arrow::RecordBatchReader> rows_;  // The rows of the group before group_.
  int64_t left_ = 0;                                // Its rows that are not read.
};

const DocumentFormat kParquet = {.name = "parquet",
                                 .title = "Parquet",
                                 .extensions = {".parquet"},
                                 .record = "row",
                                 .magics = {"PAR1\x15"},
                                 .open = read_as<ParquetDocuments>};
const DocumentFormatRegistrar kRegisterParquet(kParquet);

}  // namespace
}  // namespace tessera
