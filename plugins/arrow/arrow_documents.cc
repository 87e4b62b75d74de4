// SPDX-License-Identifier: Apache-2.0
// Documents of Arrow's interprocess format, as a file with an index of its batches, or as a stream:
// the cache of the library `datasets` is one.
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>

#include <memory>
#include <string_view>

#include "inputs/readers/foreign_format.h"
#include "plugins/arrow/column_documents.h"

namespace tessera {
namespace {

extern const DocumentFormat kArrowIpc;
constexpr std::string_view kFileMagic{"ARROW1\0\0", 8};
constexpr std::string_view kStreamMagic = "\xff\xff\xff\xff";

class ArrowDocuments final : public ColumnDocuments {
 public:
  ArrowDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : ColumnDocuments(kArrowIpc, std::move(source), options),
        is_file_(head_of(this->source()).starts_with(kFileMagic)) {
    open();
    const ColumnPath path = find_column(is_file_ ? *indexed_->schema() : *stream_->schema());
    read_.included_fields = {path[0]};
    ColumnPath in_batch = path;
    in_batch[0] = 0;
    set_column(std::move(in_batch));
    open();
  }

  int64_t bytes_read() const override { return source().bytes_read(); }

 protected:
  std::shared_ptr<arrow::RecordBatch> next_batch() override {
    if (is_file_ && batch_ == indexed_->num_record_batches()) return nullptr;
    if (is_file_) return checked_batch(value_of(indexed_->ReadRecordBatch(batch_++), where()));
    std::shared_ptr<arrow::RecordBatch> batch = value_of(stream_->Next(), where());
    // A stream ends with a marker.
    if (batch == nullptr && file().has_ended())
      fail("{}: the stream is truncated; copy or download it again", where());
    return batch == nullptr ? nullptr : checked_batch(std::move(batch));
  }

  // The format does not say where a row is: passes batches from the first one on.
  int64_t seek_batch(int64_t /*row*/) override {
    open();
    return 0;
  }

 private:
  void open() {
    batch_ = 0;
    const arrow::Status sought = file().Seek(0);
    if (!sought.ok()) fail("{}: {}", where(), sought.message());
    if (is_file_)
      indexed_ = value_of(arrow::ipc::RecordBatchFileReader::Open(shared_file(), read_), where());
    else
      stream_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(shared_file(), read_), where());
  }

  // Offsets in a damaged file could lie anywhere.
  std::shared_ptr<arrow::RecordBatch> checked_batch(std::shared_ptr<arrow::RecordBatch> batch) {
    const arrow::Status valid = batch->ValidateFull();
    if (!valid.ok() && valid.message().find("UTF8") == std::string::npos)
      fail("{}: {}", where(), valid.message());
    return batch;
  }

  arrow::ipc::IpcReadOptions read_ = [] {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    return options;
  }();
  bool is_file_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> indexed_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_;
  int batch_ = 0;  // The next one of a file.
};

const DocumentFormat kArrowIpc = {.name = "arrow",
                                  .title = "Arrow",
                                  .extensions = {".arrow", ".feather"},
                                  .record = "row",
                                  .magics = {kFileMagic, kStreamMagic},
                                  .open = read_as<ArrowDocuments>};
const DocumentFormatRegistrar kRegisterArrow(kArrowIpc);

}  // namespace
}  // namespace tessera
