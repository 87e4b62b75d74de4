// SPDX-License-Identifier: Apache-2.0
// Documents of Arrow's interprocess format, as a file with an index of its batches, or as a stream:
// the cache of the library `datasets` is one.
#include <arrow/array.h>
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

// Returns the type of the same values without the claim that they are UTF-8.
std::shared_ptr<arrow::DataType> bytes_type(const std::shared_ptr<arrow::DataType>& type) {
  switch (type->id()) {
    case arrow::Type::STRING:
      return arrow::binary();
    case arrow::Type::LARGE_STRING:
      return arrow::large_binary();
    case arrow::Type::STRING_VIEW:
      return arrow::binary_view();
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryType&>(*type);
      return arrow::dictionary(coded.index_type(), bytes_type(coded.value_type()));
    }
    default:
      return type;
  }
}

std::shared_ptr<arrow::ArrayData> as_bytes(const arrow::ArrayData& data) {
  std::shared_ptr<arrow::ArrayData> bytes = data.Copy();
  bytes->type = bytes_type(data.type);
  if (data.dictionary != nullptr) bytes->dictionary = as_bytes(*data.dictionary);
  return bytes;
}

class ArrowDocuments final : public ColumnDocuments {
 public:
  ArrowDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : ColumnDocuments(kArrowIpc, std::move(source), options),
        is_file_(head_of(this->source()).starts_with(kFileMagic)) {
    open();
    const ColumnPath path = find_column(is_file_ ? *indexed_->schema() : *stream_->schema());
    read_.included_fields = {path[0]};
    path_ = path;
    path_[0] = 0;
    set_column({0});
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
    return batch == nullptr ? nullptr : checked_batch(batch);
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

  // Returns the column alone. Offsets and codes in a damaged file could lie anywhere; text that is
  // not UTF-8, at which Arrow's check would end, is found later.
  std::shared_ptr<arrow::RecordBatch> checked_batch(
      const std::shared_ptr<arrow::RecordBatch>& batch) {
    arrow::Status valid = batch->Validate();
    if (!valid.ok()) fail("{}: {}", where(), valid.message());
    const auto column = value_of(arrow::FieldPath(path_).GetFlattened(*batch), where());
    const auto bytes = arrow::MakeArray(as_bytes(*column->data()));
    valid = bytes->ValidateFull();
    if (!valid.ok()) fail("{}: {}", where(), valid.message());
    const auto schema = arrow::schema({arrow::field("", bytes->type())});
    return arrow::RecordBatch::Make(schema, batch->num_rows(), {bytes});
  }

  arrow::ipc::IpcReadOptions read_ = [] {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    return options;
  }();
  bool is_file_;
  ColumnPath path_;  // In the batches.
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
