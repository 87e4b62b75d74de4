// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/unit_source.h"

namespace tessera {
namespace {

constexpr size_t kMostDocuments = 1 << 14;  // Of a batch, however short they are.

}  // namespace

UnitSource::UnitSource(std::span<const BuildInput> inputs, InputReaderOptions options,
                       int64_t batch_bytes)
    : inputs_(inputs), options_(std::move(options)), batch_bytes_(batch_bytes) {}

void UnitSource::open() {
  reader_ = open_input(inputs_[static_cast<size_t>(at_)], options_);
  if (from_.offset > 0 || from_.document > 0) reader_->seek(from_);
}

void UnitSource::close() {
  left_out_before_.add(reader_->left_out());
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
  batch->left_out = left_out_before_;
  batch->bytes_on_disk = bytes_before_;
  if (reader_ != nullptr) {
    batch->left_out.add(reader_->left_out());
    batch->bytes_on_disk += reader_->bytes_read();
  }
  return true;
}

void UnitSource::seek(const UnitPosition& position, const LeftOut& left_out) {
  reader_.reset();
  at_ = position.input;
  from_ = position.within;
  left_out_before_ = left_out;
  bytes_before_ = 0;
  for (int64_t i = 0; i < at_; ++i) bytes_before_ += inputs_[static_cast<size_t>(i)].bytes;
}

}  // namespace tessera
