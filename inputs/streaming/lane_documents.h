// SPDX-License-Identifier: Apache-2.0
// The documents that one row of a stream of text reads, one after another and epoch after epoch, as
// a pure function of its number; any of them can be returned to. Not tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "inputs/base_input.h"
#include "inputs/document_reader.h"
#include "inputs/shard_order.h"

namespace tessera {

// Which of the documents are read; what is held out is said by is_held_out.
enum class StreamSplit { kTrain, kValidation, kAll };

constexpr std::array<EnumName<StreamSplit>, 3> enum_names(StreamSplit) {
  return {{{StreamSplit::kTrain, "train"},
           {StreamSplit::kValidation, "validation"},
           {StreamSplit::kAll, "all"}}};
}

// What all rows share.
struct TextShards {
  std::vector<std::filesystem::path> files;
  ShardOrder order;
  ReadOptions read;
  DocumentFormat format = DocumentFormat::kAuto;
  StreamSplit split = StreamSplit::kTrain;
  double validation_fraction = 0.0;
  bool repeat = true;
  // Documents are given out in another order within blocks of so many; 1: as they stand.
  int64_t shuffle_block = 1;
  uint64_t seed = 0;
};

// Where to begin reading again to come to a document.
struct DocumentPlace {
  int64_t unit = 0;            // ShardOrder's number.
  ShardPosition block;         // Where in it the document's block begins.
  int64_t index = 0;           // Of the block's documents, in the order they are given out in.
  BrokenDocumentCount broken;  // Passed over by this row before the block.
};

class LaneDocuments {
 public:
  LaneDocuments(std::shared_ptr<const TextShards> shards, int64_t row);

  struct Document {
    std::string text;     // Not empty.
    DocumentPlace place;  // From which `next` gives it again.
  };
  // nullopt at the end of a finite set. Error if there is none for this row in two epochs.
  std::optional<Document> next();
  const DocumentPlace& place() const { return place_; }  // From which the next one is found.
  void restore(const DocumentPlace& place);
  std::string shard_name(int64_t unit) const;
  DocumentPlace begin() const { return {.unit = row_, .block = {}, .index = 0, .broken = {}}; }

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
  std::unique_ptr<DocumentReader> reader_;  // Of the unit; null until it is needed.
  DocumentPlace place_;                     // `block`: where block_ began, or begins.
  std::vector<std::string> block_;          // Documents from place_.index on are to be given out.
  bool block_read_ = false;
  BrokenDocumentCount broken_before_;  // Before where the reader was opened.
  int64_t idle_units_ = 0;             // Since the last document.
};

}  // namespace tessera
