// SPDX-License-Identifier: Apache-2.0
#include "inputs/indexed_input.h"

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "inputs/permutation.h"

namespace tessera {
namespace {

constexpr const char* kBatchSizeKey = "global_batch_size";
constexpr const char* kDataKey = "data";
constexpr size_t kMaxSpare = 8;  // Batches: as many as may be ahead of training, and some.

int64_t parse_integer(const std::string& text, const std::string& key) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    fail("input state: '{}' is '{}'; expected a positive integer", key, text);
  return value;
}

}  // namespace

IndexedInput::IndexedInput(const Stream& stream)
    : stream_(stream), rows_{{0, stream.global_batch_size}} {
  if (stream.global_batch_size < 1)
    fail("input '{}': global_batch_size is {}; expected at least 1", stream.name,
         stream.global_batch_size);
  if (stream.seq_len < 1)
    fail("input '{}': seq_len is {}; expected at least 1", stream.name, stream.seq_len);
  if (stream.num_batches < 1 && stream.num_batches != -1)
    fail("input '{}': num_batches is {}; expected -1 (all) or at least 1", stream.name,
         stream.num_batches);
}

void IndexedInput::attach(const Infeed& infeed) {
  CHECK(!attached_, "input '{}' is attached twice", stream_.name);
  rows_ = rows_of_host(*this, infeed);
  open(infeed);
  attached_ = true;
}

int64_t IndexedInput::host_rows() const {
  if (!attached_) return stream_.global_batch_size;
  int64_t rows = 0;
  for (const RowRange& range : rows_) rows += range.size();
  return rows;
}

Batch IndexedInput::specification() const {
  return token_batch_specification(host_rows(), stream_.seq_len);
}

bool IndexedInput::ended(int64_t position) const {
  if (stream_.num_batches >= 0 && position >= stream_.num_batches) return true;
  const std::optional<int64_t> examples = num_examples();
  return examples && !stream_.repeat && position * stream_.global_batch_size >= *examples;
}

// A row is the same example whichever host reads it. A batch may straddle two epochs.
Batch IndexedInput::make_batch(int64_t position) {
  Batch batch;
  if (spare_.empty()) {
    batch = make_token_batch(host_rows(), stream_.seq_len);
  } else {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  int64_t row = 0;
  for (const RowRange& range : rows_)
    for (int64_t i = range.begin; i < range.end; ++i, ++row)
      make_row(position * stream_.global_batch_size + i, token_row(batch, row));
  return batch;
}

void IndexedInput::recycle(Batch batch) {
  const auto whole = [](const auto& entry) {
    int64_t bytes = dtype_bytes(entry.second.dtype);
    for (const int64_t size : entry.second.shape) bytes *= size;
    return static_cast<int64_t>(entry.second.bytes.size()) == bytes;
  };
  if (spare_.size() < kMaxSpare && same_shapes(batch, specification()) &&
      std::all_of(batch.begin(), batch.end(), whole))
    spare_.push_back(std::move(batch));
}

// The stream's example `number`; a finite set's rows after its last example stay padding.
void IndexedInput::make_row(int64_t number, const TokenRow& row) const {
  int64_t epoch = 0, index = number;
  if (const std::optional<int64_t> examples = num_examples()) {
    epoch = number / *examples;
    index = number % *examples;
    if (epoch > 0 && !stream_.repeat) {
      clear_row(row);
      return;
    }
    if (stream_.shuffle)
      index = Permutation(*examples, stream_.seed, static_cast<uint64_t>(epoch))(index);
  }
  fill_example(epoch, index, row);
  *row.eval_sample_weight = 1.0f;
}

std::optional<Batch> IndexedInput::peek() {
  CHECK(attached_, "input '{}' is used before attach", stream_.name);
  if (ended(position_)) return std::nullopt;
  return make_batch(position_);
}

std::optional<Batch> IndexedInput::get_next() {
  std::optional<Batch> batch = peek();
  if (batch) ++position_;
  return batch;
}

InputState IndexedInput::state() const {
  InputState state{position_, {{kBatchSizeKey, std::to_string(stream_.global_batch_size)}}};
  if (const std::string data = data_fingerprint(); !data.empty()) state.extra[kDataKey] = data;
  return state;
}

void IndexedInput::restore(const InputState& state) {
  CHECK(attached_, "input '{}' is used before attach", stream_.name);
  if (state.position < 0)
    fail("input '{}': the saved position {} is negative", stream_.name, state.position);
  const auto data = state.extra.find(kDataKey);
  if (data != state.extra.end() && data->second != data_fingerprint())
    fail("input '{}': the data is not what the run was started on: it was ({}), it is ({})",
         stream_.name, data->second, data_fingerprint());
  int64_t position = state.position;
  // A changed batch size goes on with the example that comes next.
  const auto size = state.extra.find(kBatchSizeKey);
  if (size != state.extra.end()) {
    const int64_t examples = position * parse_integer(size->second, kBatchSizeKey);
    if (examples % stream_.global_batch_size != 0)
      fail(
          "input '{}': {} examples were given out, which is no whole number of batches of {}; "
          "the run had batches of {}",
          stream_.name, examples, stream_.global_batch_size, size->second);
    position = examples / stream_.global_batch_size;
  }
  position_ = position;
}

}  // namespace tessera
