// SPDX-License-Identifier: Apache-2.0
// Documents on their way into a token file: those that are still to be tokenised, and tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "inputs/document_reader.h"

namespace tessera {

enum Split { kTrain, kValidation, kNumSplits };
inline constexpr std::array<const char*, kNumSplits> kSplitNames = {"train", "validation"};
using SplitSet = std::array<bool, kNumSplits>;

// Documents of one split, as ids.
struct DocumentIds {
  // Marks the length of what goes on with the document before it.
  static constexpr uint64_t kGoesOn = uint64_t{1} << 63;
  std::vector<int32_t> ids;
  std::vector<uint64_t> lengths;

  void end_document(size_t begin) {  // Of which `begin` was the first id.
    if (ids.size() > begin) lengths.push_back(ids.size() - begin);
  }
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
  std::vector<TextDocument> texts;
  std::array<DocumentIds, kNumSplits> tokens;
  int64_t bytes = 0;  // Of text and tokens.
  // After this batch, from the unit's beginning.
  UnitPosition end;
  LeftOut left_out;
  int64_t bytes_on_disk = 0;
};

}  // namespace tessera
