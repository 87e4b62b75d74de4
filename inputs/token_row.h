// SPDX-License-Identifier: Apache-2.0
// One row of a language-model batch and its layout. Conventions follow Pax: segment_ids count
// documents from 1 (0 is padding), segment_pos counts tokens from 0 in each document, weights are 1
// where a label counts, paddings are 1 at padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inputs/base_input.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// Encoded tokens: an id and whether it begins a document.
inline uint32_t encode_token(int32_t id, bool is_start) {
  return 2 * static_cast<uint32_t>(id) + (is_start ? 1 : 0);
}
inline int32_t token_id(uint32_t encoded) { return static_cast<int32_t>(encoded >> 1); }
inline bool is_document_start(uint32_t encoded) { return (encoded & 1) != 0; }

// The prediction target of a position.
enum class Labels {
  // Labels are the row's tokens. Ids are the labels shifted right within each document, with the
  // tokenizer's start_id before the first token. Every token is a label. (seqax's flat tokens; T5.)
  kShiftRight,
  // Ids are the row's tokens. Labels are the next tokens, so a row reads one token more than its
  // length. A label in the next document has weight 0. (GPT-2, nanoGPT.)
  kNextToken,
  // As kNextToken, but within the row, also across documents: its last position has weight 0.
  // (Levanter.)
  kNextInRow,
  // As kNextInRow, and the row is one segment, in which attention crosses documents too. (Pax.)
  kOneSegment,
};

// Views of the arrays of one row (base_input.h).
struct TokenRow {
  std::span<int32_t> ids;
  std::span<int32_t> labels;
  std::span<float> weights;
  std::span<float> paddings;
  std::span<int32_t> segment_ids;
  std::span<int32_t> segment_pos;
  float* eval_sample_weight = nullptr;
  float* label_bytes = nullptr;
  int32_t* source = nullptr;
};

// The label convention, and the properties of ids it needs.
class RowLayout {
 public:
  // Without a tokenizer, start_id is 0 and labels have no bytes.
  RowLayout(Labels labels, const Tokenizer* tokenizer = nullptr);
  Labels labels() const { return labels_; }
  int32_t start_id() const { return start_id_; }
  // Bytes of text per id; empty if ids are not text.
  const std::vector<int32_t>& id_bytes() const { return id_bytes_; }

 private:
  Labels labels_;
  int32_t start_id_ = 0;
  std::vector<int32_t> id_bytes_;
};

// Returns the tokens read by a full row: seq_len, plus one for kNextToken.
int64_t tokens_per_row(Labels labels, int64_t seq_len);

// Lays out at most tokens_per_row encoded tokens; the rest is padding. Fills every array; source is
// 0, eval_sample_weight is 1.
void fill_row(const RowLayout& layout, std::span<const uint32_t> encoded, const TokenRow& row);

// Lays out one document, whose tokens are the labels (Labels::kShiftRight), after the start id 0.
void fill_document(std::span<const int32_t> ids, const TokenRow& row);

// Sets the positions from `begin` on to padding. With begin = 0, also sets the row's
// eval_sample_weight to 0.
void clear_row(const TokenRow& row, size_t begin = 0);

// Return a batch of `rows` rows of padding, and a view of one row.
Batch make_token_batch(int64_t rows, int64_t seq_len);
TokenRow token_row(Batch& batch, int64_t row);

// Returns the arrays of such a batch, without data.
Batch token_batch_specification(int64_t rows, int64_t seq_len);

}  // namespace tessera
