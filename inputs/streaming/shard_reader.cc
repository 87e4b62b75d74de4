// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming/shard_reader.h"

#include <utility>

#include "core/base/error.h"
#include "inputs/validation_split.h"

namespace tessera {
namespace {

// A block also ends at this size, because its text is held in memory.
constexpr size_t kMaxBlockBytes = size_t{16} << 20;

}  // namespace

ShardReader::ShardReader(std::shared_ptr<const TextShards> shards, int64_t row)
    : shards_(std::move(shards)), row_(row) {
  restore(begin());
}

void ShardReader::restore(const DocumentCursor& place) {
  reader_.reset();
  block_.clear();
  block_read_ = false;
  idle_units_ = 0;
  place_ = place;
}

std::string ShardReader::shard_name(int64_t unit) const {
  return shards_->files[static_cast<size_t>(shards_->order(unit).shard)].string();
}

bool ShardReader::at_end() const {
  return !shards_->repeat && place_.unit >= shards_->order.units_per_epoch();
}

bool ShardReader::is_wanted(const std::string& text) const {
  if (text.empty()) return false;
  if (shards_->split == StreamSplit::kAll) return true;
  return in_validation_split(text, shards_->validation_fraction) ==
         (shards_->split == StreamSplit::kValidation);
}

void ShardReader::open_unit() {
  const ShardOrder::Unit unit = shards_->order(place_.unit);
  ReadOptions read = shards_->read;
  read.every = shards_->order.parts();
  read.first = unit.part;
  reader_ = open_documents(shards_->files[static_cast<size_t>(unit.shard)], read, shards_->format);
  reader_->seek(place_.block);
  corrupt_before_ = place_.corrupt;
}

// Advances to the next unit of this row.
void ShardReader::leave_unit() {
  reader_.reset();
  place_.unit += shards_->order.rows();
  place_.block = {};
  const int64_t units = shards_->order.units_per_epoch(), rows = shards_->order.rows();
  if (++idle_units_ < 2 * ((units + rows - 1) / rows) || !shards_->repeat) return;
  std::string corrupt;
  if (place_.corrupt.count > 0)
    corrupt = fmt::format("; {} could not be read, the first: {}", place_.corrupt.count,
                          place_.corrupt.first);
  fail(
      "row {} of a batch of {} found no document of split '{}' in two epochs of {} shard{} ({}, "
      "…): there are fewer documents than rows{}. Split long texts with `separator`, lower "
      "global_batch_size, or use TextInput, which packs all documents",
      row_, rows, enum_name(shards_->split), shards_->files.size(),
      shards_->files.size() == 1 ? "" : "s", shards_->files[0].string(), corrupt);
}

// Reads the block at place_; an empty block is the end of the unit.
void ShardReader::read_block() {
  if (!reader_) open_unit();
  block_.clear();
  size_t bytes = 0;
  while (static_cast<int64_t>(block_.size()) < shards_->shuffle_block && bytes < kMaxBlockBytes) {
    std::optional<std::string> text = reader_->next();
    if (!text) break;
    if (!is_wanted(*text)) continue;
    bytes += text->size();
    block_.push_back(std::move(*text));
  }
  block_read_ = true;
  if (place_.index > 0 && static_cast<size_t>(place_.index) >= block_.size())
    fail("{}: only {} documents after document {}; there were more when the checkpoint was saved",
         shard_name(place_.unit), block_.size(), place_.block.document);
  if (shards_->shuffle_block > 1 && block_.size() > 1) shuffle();
}

// Keyed by the block's position, so that a re-read block has the same order.
void ShardReader::shuffle() {
  const uint64_t key = mix_bits(static_cast<uint64_t>(place_.block.document),
                                mix_bits(static_cast<uint64_t>(place_.unit), shards_->seed));
  const Permutation order(static_cast<int64_t>(block_.size()), key, 0);
  std::vector<std::string> shuffled;
  for (size_t i = 0; i < block_.size(); ++i)
    shuffled.push_back(std::move(block_[static_cast<size_t>(order(static_cast<int64_t>(i)))]));
  block_ = std::move(shuffled);
}

// After a block, the cursor is the reader's position.
void ShardReader::leave_block() {
  block_read_ = false;
  place_.block = reader_->position();
  place_.index = 0;
  const CorruptRecordCount& skipped = reader_->corrupt();
  if (skipped.count == 0) return;
  place_.corrupt.count = corrupt_before_.count + skipped.count;
  place_.corrupt.first = corrupt_before_.first.empty() ? skipped.first : corrupt_before_.first;
}

std::optional<ShardReader::Document> ShardReader::next() {
  for (;;) {
    if (at_end()) return std::nullopt;
    if (!block_read_) read_block();
    if (static_cast<size_t>(place_.index) < block_.size()) {
      idle_units_ = 0;
      Document document{std::move(block_[static_cast<size_t>(place_.index)]), place_};
      if (static_cast<size_t>(++place_.index) == block_.size()) leave_block();
      return document;
    }
    const bool unit_ended = block_.empty();
    leave_block();
    if (unit_ended) leave_unit();
  }
}

}  // namespace tessera
