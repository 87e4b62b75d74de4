// SPDX-License-Identifier: Apache-2.0
#include "inputs/indexed_input.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/hparams/convert.h"

namespace tessera {
namespace {

constexpr const char* kDataKey = "data";  // Key for data of one file;
const std::string kPartPrefix = "data/";  // of several files, followed by the file's name.
constexpr size_t kMaxSpare = 8;           // Batches: at least the prefetch depth.

// Returns the files recorded in a state: one without a name, or several with names.
std::vector<DataPart> parts_of(const std::map<std::string, std::string>& cursors) {
  std::vector<DataPart> parts;
  for (const auto& [key, fingerprint] : cursors) {
    if (key == kDataKey) return {{"", fingerprint}};
    if (key.starts_with(kPartPrefix))
      parts.push_back({key.substr(kPartPrefix.size()), fingerprint});
  }
  return parts;  // Sorted by name, as files are.
}

// Checks that the files recorded still exist, and come first.
void check_same_data(const std::string& where, const std::vector<DataPart>& before,
                     const std::vector<DataPart>& now) {
  for (size_t i = 0; i < before.size(); ++i) {
    const DataPart& old = before[i];
    const auto is_it = [&](const DataPart& part) { return part.name == old.name; };
    const bool gone = old.name.empty() ? now.empty() : std::ranges::none_of(now, is_it);
    if (gone)
      fail("{}: the run was started on {}, which no longer exists", where,
           old.name.empty() ? "a file" : old.name);
    if (!old.name.empty() && now[i].name != old.name)
      fail(
          "{}: {} was added before {}, which the run reads; names of added files must sort "
          "after all others",
          where, now[i].name, old.name);
    if (now[i].fingerprint != old.fingerprint)
      fail("{}: the data{} differs from the run's: it was ({}), it is ({})", where,
           now.size() > 1 ? " of " + now[i].name : "", old.fingerprint, now[i].fingerprint);
  }
}

}  // namespace

IndexedInput::IndexedInput(const ExampleStream& stream) : stream_(stream) {}

void IndexedInput::attach(const Infeed& infeed) {
  CHECK(!attached_, "input '{}' is attached twice", stream_.name);
  sizes_ = BatchSizes(*this, infeed);
  open(infeed);
  parts_ = data_parts();
  count_examples();
  ContentSample sample(stream_.seed);
  if (infeed.num_infeed_hosts > 1)
    for (size_t i = 0; i < parts_.size(); ++i)
      contents_[std::string(kContentPrefix) + parts_[i].name] = content_of(i, sample);
  attached_ = true;
}

void IndexedInput::count_examples() {
  std::vector<int64_t> sizes;
  for (const DataPart& part : parts_) sizes.push_back(part.examples);
  const std::optional<int64_t> examples = num_examples();
  if (sizes.empty()) sizes.push_back(examples.value_or(0));
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (examples && (sum != *examples || std::ranges::min(sizes) < 0 || (stream_.repeat && sum == 0)))
    fail_in(*this, "num_examples()", "returned {}, expected {}", *examples,
            sum == *examples ? "1 or more" : fmt::format("{}, the sum of data_parts()", sum));
  order_.reset();
  if (examples) order_.emplace(stream_.shuffle, stream_.era_length, stream_.seed, sizes);
}

void IndexedInput::reset() {
  position_ = 0;
  sizes_.restart();
  if (attached_) count_examples();
}

int64_t IndexedInput::host_rows(int64_t position) const {
  return attached_ ? std::ssize(sizes_.host_examples(position)) : stream_.global_batch_size;
}

Batch IndexedInput::specification() const {
  return token_batch_specification(host_rows(0), stream_.seq_len);
}

bool IndexedInput::repeats() const {
  return stream_.num_batches < 0 && (stream_.repeat || !num_examples());
}

bool IndexedInput::ended(int64_t position) const {
  if (stream_.num_batches >= 0 && position >= stream_.num_batches) return true;
  return order_ && !stream_.repeat && sizes_.examples_before(position) >= order_->size();
}

// Makes a batch. A row is the same example on any host. A batch may span two epochs.
Batch IndexedInput::make_batch(int64_t position) {
  const std::vector<int64_t> numbers = sizes_.host_examples(position);
  const auto rows = std::ssize(numbers);
  std::erase_if(free_buffers_,
                [&](const Batch& each) { return each.begin()->second.shape[0] != rows; });
  Batch batch;
  if (free_buffers_.empty()) {
    batch = make_token_batch(rows, stream_.seq_len);
  } else {
    batch = std::move(free_buffers_.back());
    free_buffers_.pop_back();
  }
  for (int64_t row = 0; row < rows; ++row)
    make_row(numbers[static_cast<size_t>(row)], token_row(batch, row));
  return batch;
}

void IndexedInput::recycle(Batch batch) {
  const auto whole = [](const auto& entry) {
    const auto& [name, array] = entry;
    return std::ssize(array.bytes) == element_count(array.shape) * dtype_bytes(array.dtype);
  };
  if (free_buffers_.size() < kMaxSpare &&
      same_shapes(batch, token_batch_specification(host_rows(position_), stream_.seq_len)) &&
      std::ranges::all_of(batch, whole))
    free_buffers_.push_back(std::move(batch));
}

// Makes a row; those after the last example of a finite set are padding.
void IndexedInput::make_row(int64_t number, const TokenRow& row) const {
  if (order_ && !stream_.repeat && number >= order_->size()) return clear_row(row);
  *row.eval_sample_weight = 1.0f;
  fill_numbered(number, row);
}

void IndexedInput::fill_numbered(int64_t number, const TokenRow& row) const {
  if (!order_) return fill_example(0, number, row);
  const int64_t epoch = number / order_->size();
  fill_example(epoch, (*order_)(epoch, number % order_->size()), row);
}

std::optional<Batch> IndexedInput::peek() {
  CHECK(attached_, "input '{}' is used before attach", stream_.name);
  if (ended(position_)) return std::nullopt;
  return make_batch(position_);
}

std::optional<Batch> IndexedInput::get_next() {
  std::optional<Batch> batch = peek();
  if (!ended(position_)) release(sizes_.examples_before(position_ + 1));
  if (batch) ++position_;
  has_given_ = true;
  return batch;
}

InputState IndexedInput::state() const {
  InputState state{position_, cursors_at(sizes_.examples_before(position_))};
  sizes_.note_examples(&state);
  if (!has_given_) state.cursors.merge(contents());
  return state;
}

std::map<std::string, std::string> IndexedInput::cursors_at(int64_t) const {
  std::map<std::string, std::string> cursors;
  if (parts_.size() == 1) cursors[kDataKey] = parts_[0].fingerprint;
  for (const DataPart& part : parts_)
    if (parts_.size() > 1) cursors[kPartPrefix + part.name] = part.fingerprint;
  return cursors;
}

void IndexedInput::resume(const std::map<std::string, std::string>& cursors, int64_t examples) {
  const std::vector<DataPart> before = parts_of(cursors);
  const std::string where = fmt::format("input '{}'", stream_.name);
  check_same_data(where, before, parts_);
  if (before.empty() || before.size() == parts_.size() || examples == 0) return;
  int64_t known = 0;  // Examples per epoch of the files recorded.
  for (size_t i = 0; i < before.size(); ++i) known += parts_[i].examples;
  if (stream_.shuffle == Shuffle::kFull)
    fail(
        "{}: the data has grown from {} files to {}. shuffle=full reorders all rows, so the run "
        "cannot resume; a run with shuffle=era from the start keeps the order of existing rows",
        where, before.size(), parts_.size());
  if (examples > known)
    fail(
        "{}: the data has grown from {} files to {} after {} rows were read, but the {} files have "
        "only {}: the second epoch has begun and cannot resume exactly. Use the {} files alone, or "
        "start a new run",
        where, before.size(), parts_.size(), examples, before.size(), known, before.size());
}

void IndexedInput::restore(const InputState& state) {
  CHECK(attached_, "input '{}' is used before attach", stream_.name);
  const int64_t position = sizes_.resume(stream_.name, state);
  resume(state.cursors, sizes_.examples_before(position));
  position_ = position;
  count_examples();
}

}  // namespace tessera
