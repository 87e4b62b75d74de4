// SPDX-License-Identifier: Apache-2.0
#include "inputs/mixture_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "inputs/permutation.h"

namespace tessera {

std::vector<int64_t> rows_by_weight(const std::vector<double>& weights, int64_t block_size) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  CHECK(total > 0.0 && std::isfinite(total), "weights that add up to {}", total);
  std::vector<int64_t> counts;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double share = weight / total * static_cast<double>(block_size);
    counts.push_back(static_cast<int64_t>(std::floor(share)));
    remainders.push_back(share - std::floor(share));
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  int64_t left = block_size - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (size_t i = 0; left > 0; i = (i + 1) % order.size()) {
    if (weights[order[i]] == 0.0) continue;
    ++counts[order[i]];
    --left;
  }
  return counts;
}

MixtureSchedule::MixtureSchedule(int64_t block_size, uint64_t seed, std::vector<Stage> stages)
    : block_size_(block_size), seed_(seed), stages_(std::move(stages)) {
  CHECK(!stages_.empty() && stages_[0].first_block == 0);
  for (size_t i = 0; i < stages_.size(); ++i) {
    CHECK(i == 0 || stages_[i].first_block > stages_[i - 1].first_block);
    CHECK(std::accumulate(stages_[i].counts.begin(), stages_[i].counts.end(), int64_t{0}) ==
          block_size);
  }
}

const MixtureSchedule::Stage& MixtureSchedule::stage_of(int64_t block) const {
  const auto after =
      std::upper_bound(stages_.begin(), stages_.end(), block,
                       [](int64_t at, const Stage& stage) { return at < stage.first_block; });
  return *std::prev(after);
}

std::vector<int64_t> MixtureSchedule::given_before(int64_t block) const {
  std::vector<int64_t> given(stages_[0].counts.size());
  for (size_t i = 0; i < stages_.size() && stages_[i].first_block < block; ++i) {
    const int64_t end =
        i + 1 < stages_.size() ? std::min(stages_[i + 1].first_block, block) : block;
    for (size_t source = 0; source < given.size(); ++source)
      given[source] += (end - stages_[i].first_block) * stages_[i].counts[source];
  }
  return given;
}

// A block's places are permuted; the first of them in the permutation's order are the first
// source's, and so on. Each source's rows come in their own order.
std::vector<MixtureSchedule::Pick> MixtureSchedule::block(int64_t index) const {
  const std::vector<int64_t>& counts = stage_of(index).counts;
  std::vector<int64_t> ends(counts.size());
  std::partial_sum(counts.begin(), counts.end(), ends.begin());
  std::vector<int64_t> next = given_before(index);
  const Permutation order(block_size_, seed_, static_cast<uint64_t>(index));
  std::vector<Pick> picks;
  picks.reserve(static_cast<size_t>(block_size_));
  for (int64_t place = 0; place < block_size_; ++place) {
    const auto source = std::upper_bound(ends.begin(), ends.end(), order(place)) - ends.begin();
    picks.push_back({source, next[static_cast<size_t>(source)]++});
  }
  return picks;
}

std::optional<int64_t> MixtureSchedule::row_of(int64_t source, int64_t number) const {
  const auto at = static_cast<size_t>(source);
  for (size_t i = 0; i < stages_.size(); ++i) {
    const int64_t before = given_before(stages_[i].first_block)[at];
    const int64_t count = stages_[i].counts[at];
    const bool last = i + 1 == stages_.size();
    if (count == 0) continue;
    const int64_t block = stages_[i].first_block + (number - before) / count;
    if (!last && block >= stages_[i + 1].first_block) continue;
    const std::vector<Pick> picks = this->block(block);
    for (size_t place = 0; place < picks.size(); ++place)
      if (picks[place].source == source && picks[place].number == number)
        return block * block_size_ + static_cast<int64_t>(place);
    CHECK(false, "row {} of source {} is not in block {}", number, source, block);
  }
  return std::nullopt;
}

}  // namespace tessera
