// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/input_reader.h"

#include <algorithm>
#include <cstring>

#include "inputs/validation_split.h"

namespace tessera {

void DocumentIds::add(std::span<const int32_t> ids, uint64_t mark) {
  if (ids.empty()) return;
  const size_t begin = bytes_.size();
  bytes_.resize(begin + ids.size() * static_cast<size_t>(id_bytes_));
  if (id_bytes_ == sizeof(int32_t)) {
    std::memcpy(bytes_.data() + begin, ids.data(), ids.size_bytes());
  } else {
    std::byte* to = bytes_.data() + begin;
    for (const int32_t id : ids) {
      const auto narrow = static_cast<uint16_t>(id);
      std::memcpy(to, &narrow, sizeof(narrow));
      to += sizeof(narrow);
    }
  }
  lengths_.push_back(ids.size() | mark);
}

void DocumentIds::add_document(std::span<const int32_t> ids) { add(ids, 0); }
void DocumentIds::extend_document(std::span<const int32_t> ids) { add(ids, kContinues); }

int32_t DocumentIds::id(int64_t index) const {
  const std::byte* const from = bytes_.data() + index * id_bytes_;
  if (id_bytes_ == sizeof(uint16_t)) {
    uint16_t narrow = 0;
    std::memcpy(&narrow, from, sizeof(narrow));
    return narrow;
  }
  int32_t id = 0;
  std::memcpy(&id, from, sizeof(id));
  return id;
}

void DocumentIds::clear() {
  bytes_.clear();
  lengths_.clear();
}

void DocumentBatch::clear() {
  texts.clear();
  for (DocumentIds& ids : tokens) ids.clear();
  bytes = 0;
  end = {};
  skipped = {};
  bytes_on_disk = 0;
}

// Text inputs.

namespace {

// The beginning of the tail, at a character boundary.
size_t tail_of(const std::string& text, double fraction) {
  constexpr size_t kMostContinuing = 3;
  const auto cut = static_cast<size_t>(static_cast<double>(text.size()) * (1.0 - fraction));
  size_t end = cut;
  while (end < text.size() && end < cut + kMostContinuing &&
         (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    ++end;
  return end;
}

class TextReader final : public InputReader {
 public:
  TextReader(const BuildInput& input, const InputReaderOptions& options)
      : validation_part(input.validation_part),
        fraction_(options.validation_fraction),
        documents_(open_documents(input.path, options.read,
                                  input.kind == SourceKind::kText ? DocumentFormat::kText
                                                                  : DocumentFormat::kJsonLines)) {}

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    std::optional<std::string> text = documents_->next();
    if (!text) return false;
    if (text->empty()) ++empty_;
    batch->bytes += static_cast<int64_t>(text->size());
    const auto add = [&](Split split, std::string part) {
      if (wanted[split] && !part.empty()) batch->texts.push_back({split, std::move(part)});
    };
    switch (validation_part) {
      case ValidationPart::kNone:
        add(kTrain, *std::move(text));
        break;
      case ValidationPart::kWhole:
        add(kValidation, *std::move(text));
        break;
      case ValidationPart::kByDocument: {
        const Split split = in_validation_split(*text, fraction_) ? kValidation : kTrain;
        add(split, *std::move(text));
        break;
      }
      case ValidationPart::kTail: {
        const size_t tail = tail_of(*text, fraction_);
        add(kValidation, text->substr(tail));
        text->resize(tail);
        add(kTrain, *std::move(text));
        break;
      }
    }
    return true;
  }

  ShardPosition position() const override { return documents_->position(); }
  void seek(const ShardPosition& position) override { documents_->seek(position); }
  SkippedRecords skipped() const override { return {documents_->corrupt(), empty_}; }
  int64_t bytes_read() const override { return documents_->bytes_read(); }

 private:
  ValidationPart validation_part;
  double fraction_;
  std::unique_ptr<DocumentReader> documents_;
  int64_t empty_ = 0;
};

}  // namespace

std::unique_ptr<InputReader> open_input(const BuildInput& input,
                                        const InputReaderOptions& options) {
  if (input.kind == SourceKind::kTokens)
    return read_token_bin(open_file(input.path), input, options);
  return std::make_unique<TextReader>(input, options);
}

namespace {

constexpr size_t kMostDocuments = 1 << 14;  // Per batch.

}  // namespace

UnitSource::UnitSource(std::span<const BuildInput> inputs, InputReaderOptions options,
                       int64_t batch_bytes)
    : inputs_(inputs), options_(std::move(options)), batch_bytes_(batch_bytes) {}

void UnitSource::open() {
  reader_ = open_input(inputs_[static_cast<size_t>(at_)], options_);
  if (from_.offset > 0 || from_.document > 0) reader_->seek(from_);
}

void UnitSource::close() {
  skipped_before_.add(reader_->skipped());
  reader_.reset();
  from_ = {};
  bytes_before_ += inputs_[static_cast<size_t>(at_)].bytes;
  ++at_;
}

bool UnitSource::next(const SplitSet& wanted, DocumentBatch* batch) {
  size_t documents = 0;
  const auto size = static_cast<int64_t>(inputs_.size());
  if (at_ == size) return false;
  while (at_ < size && batch->bytes < batch_bytes_ && documents < kMostDocuments) {
    if (reader_ == nullptr) open();
    if (reader_->read(wanted, batch)) {
      ++documents;
    } else {
      close();
    }
  }
  batch->end = {at_, reader_ == nullptr ? ShardPosition{} : reader_->position()};
  batch->skipped = skipped_before_;
  batch->bytes_on_disk = bytes_before_;
  if (reader_ != nullptr) {
    batch->skipped.add(reader_->skipped());
    batch->bytes_on_disk += reader_->bytes_read();
  }
  return true;
}

void UnitSource::seek(const UnitPosition& position, const SkippedRecords& skipped) {
  reader_.reset();
  at_ = position.input;
  from_ = position.within;
  skipped_before_ = skipped;
  bytes_before_ = 0;
  for (int64_t i = 0; i < at_; ++i) bytes_before_ += inputs_[static_cast<size_t>(i)].bytes;
}

}  // namespace tessera
