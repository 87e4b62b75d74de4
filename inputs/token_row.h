// SPDX-License-Identifier: Apache-2.0
// One row of a language-model batch, and how a run of tokens is laid out in it. Conventions are
// Pax's: segment_ids count documents from 1 (0 is padding), segment_pos counts tokens from 0 in
// each, weights are 1 where a label counts, paddings are 1 where there is nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "inputs/base_input.h"
#include "inputs/tokenizer.h"

namespace tessera {

// What a position is asked to predict.
enum class Labels {
  // Labels are the row's tokens; ids are the same, shifted right within each document, with the
  // tokenizer's start_id before its first token. Every token is a label. (seqax's flat tokens; T5.)
  kShiftRight,
  // Ids are the row's tokens; labels are the tokens after them, so a row reads one token more than
  // its length. A label in the next document weighs nothing. (GPT-2, nanoGPT.)
  kNextToken,
};

constexpr std::array<EnumName<Labels>, 2> enum_names(Labels) {
  return {{{Labels::kShiftRight, "shift_right"}, {Labels::kNextToken, "next_token"}}};
}

// Borrowed arrays of equal length, and what a row has one of (base_input.h).
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

// How tokens are laid out in rows, and what is known of their ids.
class RowLayout {
 public:
  // Without a tokenizer, ids are no text: 0 stands before a document, and labels have no bytes.
  RowLayout(Labels labels, const Tokenizer* tokenizer = nullptr);
  Labels labels() const { return labels_; }
  int32_t start_id() const { return start_id_; }
  // Bytes of text of each id; empty if ids are no text.
  const std::vector<int32_t>& id_bytes() const { return id_bytes_; }

 private:
  Labels labels_;
  int32_t start_id_ = 0;
  std::vector<int32_t> id_bytes_;
};

// Tokens a full row of `seq_len` positions reads: one more for kNextToken.
int64_t tokens_per_row(Labels labels, int64_t seq_len);

// Lays out encoded tokens (2 * id + is_start), at most tokens_per_row; what is left is padding.
// Every array is filled; the source is 0, and the row counts in evaluation.
void fill_row(const RowLayout& layout, std::span<const uint32_t> encoded, const TokenRow& row);

// Makes the positions from `begin` on padding, and a row of nothing else one that does not count.
void clear_row(const TokenRow& row, size_t begin = 0);

// A batch of `rows` rows of padding, and views of its rows.
Batch make_token_batch(int64_t rows, int64_t seq_len);
TokenRow token_row(Batch& batch, int64_t row);

// The arrays of such a batch, bytes empty.
Batch token_batch_specification(int64_t rows, int64_t seq_len);

}  // namespace tessera
