// SPDX-License-Identifier: Apache-2.0
// Reads the documents of one row of a stream of text, one after another and epoch after epoch. The
// sequence is a pure function of the row number, and any document can be returned to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "inputs/base_input.h"
#include "inputs/readers/document_reader.h"
#include "inputs/shuffle.h"

namespace tessera {

// The documents to read (in_validation_split).
enum class StreamSplit { kTrain, kValidation, kAll };

constexpr std::array<EnumName<StreamSplit>, 3> enum_names(StreamSplit) {
  return {{{StreamSplit::kTrain, "train"},
           {StreamSplit::kValidation, "validation"},
           {StreamSplit::kAll, "all"}}};
}

// Shared by all rows.
struct TextShards {
  std::vector<std::filesystem::path> files;
  ShardOrder order;
  ReadOptions read;
  DocumentFormat format = DocumentFormat::kAuto;
  StreamSplit split = StreamSplit::kTrain;
  double validation_fraction = 0.0;
  bool repeat = true;
  // Shuffles documents within blocks of this many; 1: no shuffling.
  int64_t shuffle_block = 1;
  uint64_t seed = 0;
};

// The position of a document.
struct DocumentCursor {
  int64_t unit = 0;            // Unit number of ShardOrder.
  ShardPosition block;         // Beginning of the document's block in the unit.
  int64_t index = 0;           // Index in the (shuffled) block.
  CorruptRecordCount corrupt;  // Skipped by this row before the block.
};

class ShardReader {
 public:
  ShardReader(std::shared_ptr<const TextShards> shards, int64_t row);

  struct Document {
    std::string text;      // Not empty.
    DocumentCursor place;  // Restoring it makes `next` return this document.
  };
  // nullopt at the end of a finite set. Error if the row has no document in two epochs.
  std::optional<Document> next();
  const DocumentCursor& place() const { return place_; }  // Of the next document.
  void restore(const DocumentCursor& place);
  std::string shard_name(int64_t unit) const;
  DocumentCursor begin() const { return {.unit = row_, .block = {}, .index = 0, .corrupt = {}}; }

 private:
  bool at_end() const;
  void read_block();
  void leave_block();
  void open_unit();
  void leave_unit();
  bool is_wanted(const std::string& text) const;
  void shuffle();

  std::shared_ptr<const TextShards> shards_;
  int64_t row_;
  std::unique_ptr<DocumentReader> reader_;  // Of the current unit; opened on demand.
  DocumentCursor place_;                    // `block`: the beginning of block_.
  std::vector<std::string> block_;  // Documents from place_.index on are still to be returned.
  bool block_read_ = false;
  CorruptRecordCount corrupt_before_;  // Before the reader's initial position.
  int64_t idle_units_ = 0;             // Units without a document since the last one.
};

}  // namespace tessera
