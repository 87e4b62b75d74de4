// SPDX-License-Identifier: Apache-2.0
// Documents of TFRecord files: a feature of each tf.Example, as TensorFlow Datasets and SeqIO write
// them. Checksums are verified.
#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "inputs/readers/record_documents.h"

namespace tessera {
namespace {

extern const DocumentFormat kTfRecord;

// The fields of a protocol buffer's message, one by one.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view message) : rest_(message) {}

  struct ProtoField {
    uint64_t number = 0;
    std::string_view bytes;         // A string or a message; numbers have none.
    std::optional<uint64_t> value;  // For a varint.
  };

  // False at the end, or at a byte that no field begins with: is_broken().
  bool next(ProtoField* field) {
    if (rest_.empty() || is_broken_) return false;
    const uint64_t key = varint();
    *field = {key >> 3, {}, {}};
    switch (key & 7) {
      case 0:
        field->value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field->bytes = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        is_broken_ = true;
    }
    return !is_broken_;
  }
  // A number of a packed list; false at the end.
  bool next_packed(uint64_t* value) {
    if (rest_.empty() || is_broken_) return false;
    *value = varint();
    return !is_broken_;
  }
  bool is_broken() const { return is_broken_; }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = take(1);
      if (byte.empty()) return 0;
      value |= uint64_t{static_cast<unsigned char>(byte[0]) & 0x7fU} << shift;
      if ((byte[0] & 0x80) == 0) return value;
    }
    is_broken_ = true;
    return 0;
  }
  std::string_view take(uint64_t size) {
    is_broken_ |= size > rest_.size();
    if (is_broken_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  bool is_broken_ = false;
};

// Numbers of fields: of Example, of Features (an entry of the map), of an entry, of Feature, and of
// BytesList and Int64List.
constexpr uint64_t kFeatures = 1, kFeature = 1, kKey = 1, kValue = 2, kBytesList = 1,
                   kInt64List = 3, kItem = 1;

// Returns the last field of this number; empty without one.
std::string_view field_bytes(std::string_view message, uint64_t number, bool* is_broken) {
  ProtoFields fields(message);
  std::string_view found;
  for (ProtoFields::ProtoField field; fields.next(&field);)
    if (field.number == number) found = field.bytes;
  *is_broken |= fields.is_broken();
  return found;
}

class TfRecordDocuments final : public RecordDocuments {
 public:
  TfRecordDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : RecordDocuments(kTfRecord, options), source_(std::move(source)) {}

  int64_t bytes_read() const override { return source_->bytes_read(); }

 protected:
  std::optional<Record> read_record(int64_t /*number*/) override {
    uint64_t size = 0;
    if (!read_head(&size)) return std::nullopt;
    if (size > static_cast<uint64_t>(options().max_document_bytes) + kMostOtherFeatures) {
      pass_data(size);
      return too_long();
    }
    buffer_.resize(size + sizeof(uint32_t));
    read_whole(buffer_.data(), buffer_.size());
    offset_ += static_cast<int64_t>(buffer_.size());
    const std::string_view data(buffer_.data(), size);
    if (masked_crc32c(data) != from_bytes<uint32_t>(buffer_.data() + size))
      return Record{std::nullopt, "the checksum of its data is wrong"};
    return parse(data);
  }
  bool skip_record() override {
    uint64_t size = 0;
    if (!read_head(&size)) return false;
    pass_data(size);
    return true;
  }
  int64_t offset() const override { return offset_; }
  void seek_record(const ShardPosition& position) override {
    source_->seek(position.offset);
    offset_ = position.offset;
  }
  const std::string& where() const override { return source_->where(); }

 private:
  static constexpr uint64_t kMostOtherFeatures = 1 << 24;

  // Reads the length of a record and the checksum of the length; false at the end.
  bool read_head(uint64_t* size) {
    std::array<char, sizeof(uint64_t) + sizeof(uint32_t)> head{};
    if (!read_whole(head.data(), head.size(), true)) return false;
    *size = from_bytes<uint64_t>(head.data());
    const std::string_view length(head.data(), sizeof(uint64_t));
    if (masked_crc32c(length) != from_bytes<uint32_t>(head.data() + sizeof(uint64_t)) ||
        *size > uint64_t{std::numeric_limits<int64_t>::max()} / 2)
      fail("{}: damaged at byte {}: the checksum of a record's length is wrong{}", where(), offset_,
           offset_ == 0 ? ", or it is no TFRecord file" : "");
    offset_ += static_cast<int64_t>(head.size());
    return true;
  }

  // Passes a record's data without parsing it.
  void pass_data(uint64_t size) {
    offset_ += static_cast<int64_t>(size);
    source_->seek(offset_);
    std::array<char, sizeof(uint32_t)> last{};
    read_whole(last.data(), last.size());
    offset_ += static_cast<int64_t>(last.size());
  }

  // Reads exactly `size` bytes, or none at the end if it may be there: false.
  bool read_whole(char* into, size_t size, bool may_end = false) {
    const size_t got = read_fully(*source_, into, size);
    if (got == 0 && may_end) return false;
    if (got < size)
      fail("{}: truncated in the record that begins before byte {}", where(), offset_);
    return true;
  }

  Record parse(std::string_view example) const {
    bool is_broken = false;
    const std::string_view features = field_bytes(example, kFeatures, &is_broken);
    ProtoFields entries(features);
    std::vector<std::string> names;
    std::optional<std::string_view> feature;
    for (ProtoFields::ProtoField entry; entries.next(&entry);) {
      if (entry.number != kFeature) continue;
      names.emplace_back(field_bytes(entry.bytes, kKey, &is_broken));
      if (names.back() == options().text_field)
        feature = field_bytes(entry.bytes, kValue, &is_broken);
    }
    if (is_broken || entries.is_broken()) return {std::nullopt, "not a tf.Example"};
    if (!feature)
      return {std::nullopt,
              missing_field_fault("feature", "example", options().text_field, names, "")};
    return options().as_ids ? ids_of(*feature) : text_of(*feature);
  }

  Record ids_of(std::string_view feature) const {
    bool is_broken = false, is_list = false;
    std::string ids;
    ProtoFields lists(feature);
    for (ProtoFields::ProtoField list; lists.next(&list);) {
      if (list.number != kInt64List) continue;
      is_list = true;
      ProtoFields items(list.bytes);
      for (ProtoFields::ProtoField item; items.next(&item);) {
        if (item.number != kItem) continue;
        if (item.value) append_id(static_cast<int64_t>(*item.value), &ids);
        ProtoFields packed(item.bytes);
        for (uint64_t id; packed.next_packed(&id);) append_id(static_cast<int64_t>(id), &ids);
        is_broken |= packed.is_broken();
      }
      is_broken |= items.is_broken();
    }
    if (is_broken || lists.is_broken()) return {std::nullopt, "not a tf.Example"};
    if (!is_list)
      return {std::nullopt,
              fmt::format("the feature '{}' is not a list of int64", options().text_field)};
    return {std::move(ids), ""};
  }

  Record text_of(std::string_view feature) const {
    bool is_broken = false;
    ProtoFields items(field_bytes(feature, kBytesList, &is_broken));
    std::vector<std::string_view> texts;
    for (ProtoFields::ProtoField item; items.next(&item);)
      if (item.number == kItem) texts.push_back(item.bytes);
    if (is_broken || items.is_broken()) return {std::nullopt, "not a tf.Example"};
    if (texts.size() != 1)
      return {std::nullopt,
              fmt::format("the feature '{}' has {} texts, expected one{}", options().text_field,
                          texts.size(), texts.empty() ? ": a list of bytes with one item" : "")};
    return checked(std::string(texts[0]));
  }

  std::unique_ptr<ByteSource> source_;
  int64_t offset_ = 0;
  std::vector<char> buffer_;
};

const DocumentFormat kTfRecord = {.name = "tfrecord",
                                  .title = "TFRecord",
                                  .extensions = {".tfrecord*", ".tfrec"},
                                  .record = "record",
                                  .has_ids = true,
                                  .open = read_as<TfRecordDocuments>};
const DocumentFormatRegistrar kRegisterTfRecord(kTfRecord);

}  // namespace
}  // namespace tessera
