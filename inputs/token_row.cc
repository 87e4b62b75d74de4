// SPDX-License-Identifier: Apache-2.0
#include "inputs/token_row.h"

#include <algorithm>

#include "core/base/error.h"
#include "inputs/flat_tokens_file.h"

namespace tessera {
namespace {

template <typename T>
std::span<T> row_of(Batch& batch, const std::string& name, int64_t row) {
  HostArray& array = batch.at(name);
  const int64_t length = array.shape.at(1);
  return {array.data<T>() + row * length, static_cast<size_t>(length)};
}

// Counts documents and positions in them along a row.
class SegmentCounter {
 public:
  // Of the token at the next position.
  void next(bool is_start) {
    if (is_start || segment_ == 0) {
      ++segment_;
      position_ = -1;
    }
    ++position_;
  }
  int32_t segment() const { return segment_; }
  int32_t position() const { return position_; }

 private:
  int32_t segment_ = 0;
  int32_t position_ = 0;
};

}  // namespace

int64_t tokens_per_row(Labels labels, int64_t seq_len) {
  return labels == Labels::kNextToken ? seq_len + 1 : seq_len;
}

void fill_row(Labels labels, std::span<const uint32_t> encoded, const TokenRow& row) {
  const size_t ahead = labels == Labels::kNextToken ? 1 : 0;
  const size_t positions = encoded.size() < ahead ? 0 : encoded.size() - ahead;
  CHECK(positions <= row.ids.size(), "{} positions in a row of {}", positions, row.ids.size());
  SegmentCounter counter;
  for (size_t i = 0; i < positions; ++i) {
    counter.next(is_document_start(encoded[i]));
    const uint32_t label = encoded[i + ahead];
    row.labels[i] = token_id(label);
    row.segment_ids[i] = counter.segment();
    row.segment_pos[i] = counter.position();
    row.paddings[i] = 0.0f;
    if (labels == Labels::kShiftRight) {
      row.ids[i] = counter.position() == 0 ? 0 : token_id(encoded[i - 1]);
      row.weights[i] = 1.0f;
    } else {
      row.ids[i] = token_id(encoded[i]);
      row.weights[i] = is_document_start(label) ? 0.0f : 1.0f;
    }
  }
}

Batch token_batch_specification(int64_t rows, int64_t seq_len) {
  Batch batch;
  for (const char* name : {"ids", "labels", "segment_ids", "segment_pos"})
    batch[name] = {DType::kI32, {"batch", "seq"}, {rows, seq_len}, {}};
  for (const char* name : {"weights", "paddings"})
    batch[name] = {DType::kF32, {"batch", "seq"}, {rows, seq_len}, {}};
  batch["eval_sample_weights"] = {DType::kF32, {"batch"}, {rows}, {}};
  return batch;
}

Batch make_token_batch(int64_t rows, int64_t seq_len) {
  Batch batch = token_batch_specification(rows, seq_len);
  for (auto& [name, array] : batch) {
    int64_t elements = 1;
    for (int64_t size : array.shape) elements *= size;
    array.bytes.resize(static_cast<size_t>(elements * dtype_bytes(array.dtype)));
  }
  HostArray& paddings = batch.at("paddings");
  std::fill_n(paddings.data<float>(), rows * seq_len, 1.0f);
  return batch;
}

TokenRow token_row(Batch& batch, int64_t row) {
  return {row_of<int32_t>(batch, "ids", row),         row_of<int32_t>(batch, "labels", row),
          row_of<float>(batch, "weights", row),       row_of<float>(batch, "paddings", row),
          row_of<int32_t>(batch, "segment_ids", row), row_of<int32_t>(batch, "segment_pos", row)};
}

}  // namespace tessera
