// SPDX-License-Identifier: Apache-2.0
#include "inputs/token_row.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {
namespace {

template <typename T>
std::span<T> row_of(Batch& batch, const std::string& name, int64_t row) {
  HostArray& array = batch.at(name);
  const int64_t length = array.shape.at(1);
  return {array.data<T>() + row * length, static_cast<size_t>(length)};
}

// The positions of one document in a row.
struct Run {
  size_t begin = 0;
  size_t end = 0;
};

// Returns the end of the document at `begin`: the next start, or `size`.
size_t end_of_run(std::span<const uint32_t> encoded, size_t begin, size_t size) {
  // Starts are rare: test whole blocks first.
  constexpr size_t kBlock = 32;
  size_t i = begin + 1;
  for (; i + kBlock <= size; i += kBlock) {
    uint32_t any = 0;
    for (size_t j = 0; j < kBlock; ++j) any |= encoded[i + j];
    if (is_document_start(any)) break;
  }
  while (i < size && !is_document_start(encoded[i])) ++i;
  return std::min(i, size);
}

void fill_positions(const Run& run, int32_t segment, const TokenRow& row) {
  for (size_t i = run.begin; i < run.end; ++i) row.segment_ids[i] = segment;
  int32_t* positions = row.segment_pos.data() + run.begin;
  const auto size = static_cast<int32_t>(run.end - run.begin);
  for (int32_t i = 0; i < size; ++i) positions[i] = i;
}

int64_t bytes_of(const std::vector<int32_t>& id_bytes, int32_t id) {
  const auto at = static_cast<size_t>(id);
  return at < id_bytes.size() ? id_bytes[at] : 0;
}

// Returns the bytes of text of the first `size` labels.
int64_t bytes_of_labels(const std::vector<int32_t>& id_bytes, const TokenRow& row, size_t size) {
  if (id_bytes.empty()) return 0;
  const auto last = static_cast<int32_t>(id_bytes.size() - 1);
  int32_t beyond = 0;  // Negative if any label is outside the table.
  for (size_t i = 0; i < size; ++i) beyond |= last - row.labels[i];
  int64_t bytes = 0;
  if (beyond < 0) {
    for (size_t i = 0; i < size; ++i) bytes += bytes_of(id_bytes, row.labels[i]);
    return bytes;
  }
  // Several accumulators break the dependency chain of additions.
  constexpr size_t kSums = 8;
  const int32_t* of_id = id_bytes.data();
  const int32_t* labels = row.labels.data();
  int64_t sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= size; i += kSums)
    for (size_t j = 0; j < kSums; ++j) sums[j] += of_id[labels[i + j]];
  for (; i < size; ++i) bytes += of_id[labels[i]];
  for (const int64_t sum : sums) bytes += sum;
  return bytes;
}

}  // namespace

RowLayout::RowLayout(Labels labels, const Tokenizer* tokenizer) : labels_(labels) {
  if (tokenizer == nullptr) return;
  start_id_ = tokenizer->start_id();
  id_bytes_.resize(static_cast<size_t>(tokenizer->vocab_size()));
  for (size_t i = 0; i < id_bytes_.size(); ++i)
    id_bytes_[i] = tokenizer->byte_length(static_cast<int32_t>(i));
}

int64_t tokens_per_row(Labels labels, int64_t seq_len) {
  return labels == Labels::kNextToken ? seq_len + 1 : seq_len;
}

void clear_row(const TokenRow& row, size_t begin) {
  for (const std::span<int32_t>& array : {row.ids, row.labels, row.segment_ids, row.segment_pos})
    std::fill(array.begin() + static_cast<int64_t>(begin), array.end(), 0);
  std::fill(row.weights.begin() + static_cast<int64_t>(begin), row.weights.end(), 0.0f);
  std::fill(row.paddings.begin() + static_cast<int64_t>(begin), row.paddings.end(), 1.0f);
  if (begin > 0) return;
  *row.eval_sample_weight = 0.0f;
  *row.label_bytes = 0.0f;
  *row.source = 0;
}

void fill_row(const RowLayout& layout, std::span<const uint32_t> encoded, const TokenRow& row) {
  const bool shifted = layout.labels() == Labels::kShiftRight;
  const bool beyond = layout.labels() == Labels::kNextToken;  // Reads a token beyond the row.
  const size_t ahead = shifted ? 0 : 1;
  const size_t size = beyond && !encoded.empty() ? encoded.size() - 1 : encoded.size();
  CHECK(size <= row.ids.size(), "{} positions in a row of {}", size, row.ids.size());
  const size_t known = beyond || shifted || size == 0 ? size : size - 1;  // Positions with a label.
  clear_row(row, known);
  for (size_t i = 0; i < known; ++i) row.labels[i] = token_id(encoded[i + ahead]);
  // The first id of each document in a shifted row is set below.
  for (size_t i = shifted ? 1 : 0; i < size; ++i) row.ids[i] = token_id(encoded[i - (1 - ahead)]);
  std::fill_n(row.weights.begin(), known, 1.0f);
  std::fill_n(row.paddings.begin(), size, 0.0f);
  int64_t bytes = bytes_of_labels(layout.id_bytes(), row, known);
  int32_t segment = 0;
  for (Run run; run.begin < size; run.begin = run.end) {
    run.end = layout.labels() == Labels::kOneSegment ? size : end_of_run(encoded, run.begin, size);
    fill_positions(run, ++segment, row);
    if (shifted) {
      row.ids[run.begin] = layout.start_id();
    } else if (beyond && is_document_start(encoded[run.end])) {
      // A document's first token is not predicted.
      row.weights[run.end - 1] = 0.0f;
      bytes -= bytes_of(layout.id_bytes(), row.labels[run.end - 1]);
    }
  }
  *row.eval_sample_weight = 1.0f;
  *row.label_bytes = static_cast<float>(bytes);
  *row.source = 0;
}

void fill_document(std::span<const int32_t> ids, const TokenRow& row) {
  std::vector<uint32_t> encoded;
  for (const int32_t id : ids) encoded.push_back(encode_token(id, encoded.empty()));
  fill_row(Labels::kShiftRight, encoded, row);
}

Batch token_batch_specification(int64_t rows, int64_t seq_len) {
  Batch batch;
  for (const char* name : {"ids", "labels", "segment_ids", "segment_pos"})
    batch[name] = {DType::kI32, {"batch", "seq"}, {rows, seq_len}, {}};
  for (const char* name : {"weights", "paddings"})
    batch[name] = {DType::kF32, {"batch", "seq"}, {rows, seq_len}, {}};
  for (const char* name : {"eval_sample_weights", "label_bytes"})
    batch[name] = {DType::kF32, {"batch"}, {rows}, {}};
  batch["source"] = {DType::kI32, {"batch"}, {rows}, {}};
  return batch;
}

Batch make_token_batch(int64_t rows, int64_t seq_len) {
  return padding_batch(token_batch_specification(rows, seq_len));
}

TokenRow token_row(Batch& batch, int64_t row) {
  return {row_of<int32_t>(batch, "ids", row),
          row_of<int32_t>(batch, "labels", row),
          row_of<float>(batch, "weights", row),
          row_of<float>(batch, "paddings", row),
          row_of<int32_t>(batch, "segment_ids", row),
          row_of<int32_t>(batch, "segment_pos", row),
          batch.at("eval_sample_weights").data<float>() + row,
          batch.at("label_bytes").data<float>() + row,
          batch.at("source").data<int32_t>() + row};
}

}  // namespace tessera
