// SPDX-License-Identifier: Apache-2.0
#include "inputs/base_input.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {

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
    : are_given_(!infeed.sizes.empty()), sizes_(infeed.sizes) {
  if (!are_given_) sizes_ = {{0, input.global_batch_size(), rows_of_host(input, infeed)}};
}

int64_t BatchSizes::examples_before(int64_t batch) const {
  int64_t examples = 0;
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

}  // namespace tessera
