// SPDX-License-Identifier: Apache-2.0
// One row of a stream of text: its documents turned into tokens, and those cut into rows of batch
// after batch. What does not fit in a row goes on in the next, so that no token is lost.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "inputs/streaming/lane_documents.h"
#include "inputs/token_row.h"
#include "inputs/tokenizer.h"

namespace tessera {

// Whether a document's tokens end with the tokenizer's `end_id`.
enum class EndOfDocument {
  kAuto,  // If it has one.
  kNone,
};

constexpr std::array<EnumName<EndOfDocument>, 2> enum_names(EndOfDocument) {
  return {{{EndOfDocument::kAuto, "auto"}, {EndOfDocument::kNone, "none"}}};
}

// Where a row's stream is: at this token of the document that is found there.
struct LanePlace {
  DocumentPlace document;
  int64_t tokens = 0;  // Of the document, given out in rows before.
};

// As a checkpoint keeps it: "<unit> <document> <offset> <index> <tokens>". Broken documents are
// kept elsewhere (base_input.h).
std::string lane_place_text(const LanePlace& place);
// Error if it is none; `what` names it in messages.
LanePlace parse_lane_place(const std::string& text, const std::string& what);

class TextLane {
 public:
  struct Options {
    Labels labels = Labels::kNextToken;
    int64_t seq_len = 0;
    EndOfDocument end_of_document = EndOfDocument::kAuto;
  };
  // The tokenizer outlives the lane.
  TextLane(std::shared_ptr<const TextShards> shards, const Tokenizer& tokenizer,
           const Options& options, int64_t row);

  // The encoded tokens of the next row (flat_tokens_file.h), at most tokens_per_row; empty at the
  // end of a finite set.
  std::vector<uint32_t> next_row();
  LanePlace place() const;  // Of the row that comes next.
  void restore(const LanePlace& place);
  LanePlace begin() const { return {documents_.begin(), 0}; }

 private:
  struct Piece {
    DocumentPlace place;
    std::vector<int32_t> ids;
    size_t used = 0;
  };
  bool add_document();

  const Tokenizer& tokenizer_;
  Options options_;
  LaneDocuments documents_;
  std::deque<Piece> pieces_;  // None is used up.
  size_t available_ = 0;      // Tokens in them.
  // The tokens of the document found at `resumed_` that were given out before; 0 once it is read.
  size_t skip_ = 0;
  DocumentPlace resumed_;
};

}  // namespace tessera
