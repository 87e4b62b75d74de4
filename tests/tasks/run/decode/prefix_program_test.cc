// SPDX-License-Identifier: Apache-2.0
#include "tests/tasks/run/decode/prefix_program.h"

#include <string_view>

#include "core/base/random.h"
#include "tests/support/catch.h"

namespace tessera {

PrefixProgram::PrefixProgram(const Sizes& sizes)
    : sizes_(sizes),
      cache_(static_cast<size_t>(sizes.rows),
             std::vector<int32_t>(static_cast<size_t>(sizes.cache_length), -1)),
      logits_(static_cast<size_t>(sizes.rows * sizes.vocab_size)) {}

std::vector<float> PrefixProgram::logits_after(std::span<const int32_t> tokens,
                                               const Sizes& sizes) {
  const uint64_t key = random_key(
      7, std::string_view(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()));
  std::vector<float> logits;
  for (int64_t i = 0; i < sizes.vocab_size; ++i) {
    const float uniform = uniform_from_bits(philox(key, static_cast<uint64_t>(i), 0)[0]);
    logits.push_back(static_cast<float>(sizes.sharpness) * (2.0f * uniform - 1.0f));
  }
  return logits;
}

// Like a real cache, a call writes all of its positions in every row, padding included, and drops
// what lies beyond the end.
std::span<const float> PrefixProgram::run(std::span<const RowTokens> rows, int64_t seq) {
  REQUIRE(static_cast<int64_t>(rows.size()) == sizes_.rows);
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto& [position, ids, prompt] = rows[row];
    REQUIRE(static_cast<int64_t>(ids.size()) <= seq);
    std::vector<int32_t>& cache = cache_[row];
    for (int64_t i = 0; i < seq && position + i < sizes_.cache_length; ++i)
      cache[static_cast<size_t>(position + i)] =
          i < static_cast<int64_t>(ids.size()) ? ids[static_cast<size_t>(i)] : -1;
    if (ids.empty()) continue;
    const auto end = static_cast<size_t>(position) + ids.size();
    REQUIRE(end <= cache.size());
    const std::span<const int32_t> seen = std::span(cache).first(end);
    for (const int32_t id : seen) REQUIRE((id >= 0 && id < sizes_.vocab_size));
    const std::vector<float> logits = logits_after(seen, sizes_);
    std::copy(logits.begin(), logits.end(),
              logits_.begin() + static_cast<int64_t>(row) * sizes_.vocab_size);
  }
  return logits_;
}

std::span<const float> PrefixProgram::prefill(std::span<const RowTokens> rows) {
  ++prefills;
  for (const RowTokens& row : rows)
    if (!row.ids.empty()) REQUIRE(row.position % sizes_.prefill_chunk == 0);
  return run(rows, sizes_.prefill_chunk);
}

std::span<const float> PrefixProgram::step(std::span<const RowTokens> rows) {
  ++steps;
  return run(rows, 1);
}

void PrefixProgram::reorder(std::span<const int32_t> parents) {
  ++reorders;
  const auto before = cache_;
  for (size_t row = 0; row < cache_.size(); ++row)
    cache_[row] = before.at(static_cast<size_t>(parents[row]));
}

}  // namespace tessera
