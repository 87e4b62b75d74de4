// SPDX-License-Identifier: Apache-2.0
// Documents on their way into a token file: those that are still to be tokenised, and tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inputs/document_reader.h"

namespace tessera {

enum Split { kTrain, kValidation, kNumSplits };
inline constexpr std::array<const char*, kNumSplits> kSplitNames = {"train", "validation"};
using SplitSet = std::array<bool, kNumSplits>;

// Documents of one split, as ids: packed as in parts' files, since batches wait in memory for their
// turn to be written.
class DocumentIds {
 public:
  // Marks the length of what goes on with the document before it.
  static constexpr uint64_t kGoesOn = uint64_t{1} << 63;
  static bool is_narrow(int64_t vocab_size) { return vocab_size <= int64_t{1} << 16; }
  static int64_t id_bytes(int64_t vocab_size) { return is_narrow(vocab_size) ? 2 : 4; }

  explicit DocumentIds(int64_t vocab_size) : id_bytes_(id_bytes(vocab_size)) {}
  void add_document(std::span<const int32_t> ids);     // An empty one is left out.
  void extend_document(std::span<const int32_t> ids);  // More of the last one.

  bool empty() const { return bytes_.empty(); }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) / id_bytes_; }
  int32_t id(int64_t index) const;
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::vector<uint64_t>& lengths() const { return lengths_; }

  void reserve(int64_t ids) { bytes_.reserve(static_cast<size_t>(ids * id_bytes_)); }
  int64_t capacity() const { return static_cast<int64_t>(bytes_.capacity()) / id_bytes_; }
  void clear();  // Keeps the memory.

 private:
  void add(std::span<const int32_t> ids, uint64_t mark);

  int64_t id_bytes_;
  std::vector<std::byte> bytes_;
  std::vector<uint64_t> lengths_;
};

struct TextDocument {
  Split split = kTrain;
  std::string text;
};

// A place in a unit of work, which is a few inputs in a row.
struct UnitPosition {
  int64_t input = 0;
  ShardPosition within;
};

struct LeftOut {
  SkipCounts broken;
  int64_t empty = 0;  // Documents without any text.

  void add(const LeftOut& other) {
    if (broken.broken == 0) broken.first = other.broken.first;
    broken.broken += other.broken.broken;
    empty += other.empty;
  }
};

struct DocumentBatch {
  explicit DocumentBatch(int64_t vocab_size)
      : tokens{DocumentIds(vocab_size), DocumentIds(vocab_size)} {}
  void clear();  // Keeps the memory, to be filled again.

  std::vector<TextDocument> texts;
  std::array<DocumentIds, kNumSplits> tokens;
  int64_t bytes = 0;  // Of text and tokens.
  // After this batch, from the unit's beginning.
  UnitPosition end;
  LeftOut left_out;
  int64_t bytes_on_disk = 0;
};

}  // namespace tessera
