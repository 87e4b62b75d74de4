// SPDX-License-Identifier: Apache-2.0
#include "inputs/base_input.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"

namespace tessera {
namespace {

// Keys of a state.
constexpr const char* kBatchSizeKey = "global_batch_size";
constexpr const char* kExamplesKey = "examples";  // If they are not of batches of this size.

void repeat_rows(HostArray& array, int64_t count) {
  const auto size = static_cast<size_t>(dtype_bytes(array.dtype));
  std::vector<std::byte> bytes;
  bytes.reserve(array.bytes.size() * static_cast<size_t>(count));
  for (size_t at = 0; at < array.bytes.size(); at += size)
    for (int64_t i = 0; i < count; ++i)
      bytes.insert(bytes.end(), array.bytes.data() + at, array.bytes.data() + at + size);
  array.bytes = std::move(bytes);
}

std::span<int32_t> integers(Batch& batch, const char* name) {
  const auto found = batch.find(name);
  if (found == batch.end() || found->second.dtype != DType::kI32) return {};
  return {found->second.data<int32_t>(), found->second.bytes.size() / sizeof(int32_t)};
}

// Counts segments and positions from the beginning of each piece.
void number_pieces(Batch& batch, size_t size) {
  const std::span<int32_t> ids = integers(batch, "segment_ids");
  const std::span<int32_t> positions = integers(batch, "segment_pos");
  for (size_t begin = 0; begin < ids.size(); begin += size) {
    const int32_t first = ids[begin], start = positions.empty() ? 0 : positions[begin];
    for (size_t i = begin; first > 0 && i < begin + size && ids[i] > 0; ++i) {
      if (ids[i] == first && start > 0) positions[i] -= start;
      ids[i] -= first - 1;
    }
  }
}

}  // namespace

std::optional<int64_t> saved_integer(const std::map<std::string, std::string>& cursors,
                                     const std::string& key, int64_t least) {
  const auto found = cursors.find(key);
  if (found == cursors.end()) return std::nullopt;
  const std::optional<int64_t> value = parse_integer(found->second);
  if (!value || *value < least)
    fail("input state: '{}' is '{}'; expected an integer of at least {}", key, found->second,
         least);
  return value;
}

bool same_shapes(const Batch& a, const Batch& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.dtype == y.second.dtype &&
           x.second.shape == y.second.shape;
  });
}

Batch global_specification(const BaseInput& input) {
  Batch specification = input.specification();
  for (auto& [name, array] : specification) array.shape[0] = input.global_batch_size();
  return specification;
}

int64_t sequence_length(const BaseInput& input) {
  const Batch specification = input.specification();
  const auto ids = specification.find("ids");
  return ids == specification.end() || ids->second.shape.size() < 2 ? 0 : ids->second.shape[1];
}

std::vector<RowRange> rows_of_host(const BaseInput& input, const Infeed& infeed) {
  CHECK(infeed.num_infeed_hosts >= 1 && infeed.infeed_host_index >= 0 &&
        infeed.infeed_host_index < infeed.num_infeed_hosts);
  const int64_t batch_size = input.global_batch_size();
  if (infeed.rows.empty()) {
    if (batch_size % infeed.num_infeed_hosts != 0)
      fail("input '{}': global_batch_size {} is not divisible by {} hosts", input.name(),
           batch_size, infeed.num_infeed_hosts);
    const int64_t share = batch_size / infeed.num_infeed_hosts;
    return {{infeed.infeed_host_index * share, (infeed.infeed_host_index + 1) * share}};
  }
  int64_t last = 0;
  for (const RowRange& range : infeed.rows) {
    CHECK(range.begin >= last && range.end > range.begin && range.end <= batch_size,
          "rows {} to {} of a batch of {}", range.begin, range.end, batch_size);
    last = range.end;
  }
  return infeed.rows;
}

BatchSizes::BatchSizes(const BaseInput& input, const Infeed& infeed)
    : are_given_(!infeed.sizes.empty()),
      sizes_(infeed.sizes),
      own_size_(input.global_batch_size()) {
  if (!are_given_) sizes_ = {{0, input.global_batch_size(), rows_of_host(input, infeed)}};
}

int64_t BatchSizes::examples_before(int64_t batch) const {
  int64_t examples = shift_;
  for (auto size = sizes_.rbegin(); size != sizes_.rend(); ++size) {
    examples += std::max<int64_t>(0, batch - size->first_batch) * size->global_batch_size;
    batch = std::min(batch, size->first_batch);
  }
  return examples;
}

std::vector<int64_t> BatchSizes::host_examples(int64_t batch) const {
  const auto after = std::ranges::upper_bound(sizes_, batch, {}, &BatchSize::first_batch);
  const int64_t first = examples_before(batch);
  std::vector<int64_t> numbers;
  for (const RowRange& range : (after - 1)->rows)
    for (int64_t i = range.begin; i < range.end; ++i) numbers.push_back(first + i);
  return numbers;
}

std::set<int64_t> BatchSizes::host_lanes(int64_t lanes) const {
  std::set<int64_t> found;
  for (const BatchSize& size : sizes_) {
    const int64_t period = lanes / std::gcd(lanes, size.global_batch_size);
    for (int64_t i = 0; i < period && std::ssize(found) < lanes; ++i)
      for (const int64_t number : host_examples(size.first_batch + i))
        found.insert((number % lanes + lanes) % lanes);  // Numbers may be negative.
  }
  return found;
}

void BatchSizes::note_examples(InputState* state) const {
  state->cursors[kBatchSizeKey] = std::to_string(own_size_);
  if (are_given_ || shift_ != 0)
    state->cursors[kExamplesKey] = std::to_string(examples_before(state->position));
}

int64_t BatchSizes::resume(const std::string& input, const InputState& state) {
  if (state.position < 0)
    fail("input '{}': the saved position {} is negative", input, state.position);
  const int64_t before = saved_integer(state.cursors, kBatchSizeKey, 1).value_or(own_size_);
  const int64_t examples =
      saved_integer(state.cursors, kExamplesKey, 0).value_or(state.position * before);
  restart();
  if (are_given_) {
    const int64_t now = examples_before(state.position);
    if (now != examples)
      fail(
          "input '{}': the run has read {} rows in {} batches; with the current sizes of batches "
          "it would be {}. Change sizes only from a later step on",
          input, examples, state.position, now);
    return state.position;
  }
  const int64_t position = std::max<int64_t>(examples / own_size_, examples > 0 ? 1 : 0);
  shift_ = examples - position * own_size_;
  return position;
}

Batch padding_batch(const Batch& specification) {
  Batch batch = specification;
  for (auto& [name, array] : batch) {
    const int64_t elements = element_count(array.shape);
    array.bytes.assign(static_cast<size_t>(elements * dtype_bytes(array.dtype)), std::byte{0});
    if (name == "paddings") std::fill_n(array.data<float>(), elements, 1.0f);
  }
  return batch;
}

std::string corrupt_records_entry(const CorruptRecordCount& count) {
  return fmt::format("{} {}", count.count, count.first);
}

CorruptRecordCount parse_corrupt_records(const std::string& entry) {
  int64_t count = 0;
  const char* const last = entry.data() + entry.size();
  const auto [end, error] = std::from_chars(entry.data(), last, count);
  if (error != std::errc() || count < 1) return {};
  return {count, end == last ? "" : std::string(end + 1, last)};
}

CorruptRecordCount corrupt_records(const InputState& state) {
  CorruptRecordCount all;
  for (const auto& [key, entry] : state.cursors) {
    if (key.starts_with(kCorruptRecordsPrefix)) all.add(parse_corrupt_records(entry));
  }
  return all;
}

void cut_rows(Batch& batch, int64_t seq_len) {
  const int64_t pieces = batch.at("ids").shape[1] / seq_len;
  if (pieces == 1) return;
  for (auto& [name, array] : batch) {
    if (array.shape.size() == 1) repeat_rows(array, pieces);
    array.shape[0] *= pieces;
    if (array.shape.size() > 1) array.shape[1] = seq_len;
    if (name == "label_bytes") std::ranges::fill(array.bytes, std::byte{0});
  }
  number_pieces(batch, static_cast<size_t>(seq_len));
}

}  // namespace tessera
