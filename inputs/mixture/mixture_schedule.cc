// SPDX-License-Identifier: Apache-2.0
#include "inputs/mixture/mixture_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "inputs/shuffle.h"

namespace tessera {

std::vector<int64_t> apportion_rows(const std::vector<double>& weights, int64_t block_size) {
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
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  int64_t left = block_size - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (size_t i = 0; left > 0; i = (i + 1) % order.size()) {
    if (weights[order[i]] == 0.0) continue;
    ++counts[order[i]];
    --left;
  }
  return counts;
}

int64_t MixtureSchedule::Stage::rows() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

MixtureSchedule::MixtureSchedule(int64_t block_size, uint64_t seed, std::vector<Stage> stages)
    : block_size_(block_size), seed_(seed), stages_(std::move(stages)) {
  CHECK(!stages_.empty() && stages_[0].first_block == 0);
  for (size_t i = 0; i < stages_.size(); ++i) {
    CHECK(i == 0 || stages_[i].first_block > stages_[i - 1].first_block);
    const int64_t rows = stages_[i].rows();
    CHECK(rows == block_size || (rows < block_size && i + 1 == stages_.size()));
  }
}

MixtureSchedule::MixtureSchedule(int64_t block_size, std::vector<double> weights,
                                 std::vector<int64_t> rows)
    : block_size_(block_size), weights_(std::move(weights)), rows_before_({std::move(rows)}) {
  CHECK(!weights_.empty() && weights_.size() == rows_before_[0].size());
}

std::vector<MixtureSchedule::Pick> MixtureSchedule::greedy_block(std::vector<int64_t>* rows) const {
  const std::vector<int64_t>& first = rows_before_[0];
  int64_t row = std::accumulate(rows->begin(), rows->end(), int64_t{0});
  std::vector<Pick> picks;
  picks.reserve(static_cast<size_t>(block_size_));
  for (const int64_t end = row + block_size_; row < end; ++row) {
    const auto number = static_cast<double>(std::max<int64_t>(row, 1));
    double most = -std::numeric_limits<double>::infinity();
    size_t source = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const double share = weights_[i] * number;
      const double error = share - static_cast<double>((*rows)[i]);
      if (weights_[i] == 0.0 || error <= most) continue;
      most = error;
      source = i;
    }
    picks.push_back({static_cast<int64_t>(source), (*rows)[source]++ - first[source]});
  }
  return picks;
}

const std::vector<int64_t>& MixtureSchedule::greedy_rows(int64_t block) const {
  while (std::ssize(rows_before_) <= block) {
    std::vector<int64_t> rows = rows_before_.back();
    greedy_block(&rows);
    rows_before_.push_back(std::move(rows));
  }
  return rows_before_[static_cast<size_t>(block)];
}

std::optional<int64_t> MixtureSchedule::size() const {
  if (!ends()) return std::nullopt;
  return stages_.back().first_block * block_size_ + stages_.back().rows();
}

const MixtureSchedule::Stage& MixtureSchedule::stage_of(int64_t block) const {
  const auto after = std::ranges::upper_bound(stages_, block, {}, &Stage::first_block);
  return *std::prev(after);
}

std::vector<int64_t> MixtureSchedule::given_before(int64_t block) const {
  if (!weights_.empty()) {
    std::vector<int64_t> given = greedy_rows(block);
    for (size_t i = 0; i < given.size(); ++i) given[i] -= rows_before_[0][i];
    return given;
  }
  std::vector<int64_t> given(stages_[0].counts.size());
  for (size_t i = 0; i < stages_.size() && stages_[i].first_block < block; ++i) {
    const bool last = i + 1 == stages_.size();
    int64_t end = last ? block : std::min(stages_[i + 1].first_block, block);
    if (last && ends()) end = stages_[i].first_block + 1;
    for (size_t source = 0; source < given.size(); ++source)
      given[source] += (end - stages_[i].first_block) * stages_[i].counts[source];
  }
  return given;
}

// Permutes the positions of a block; the first counts[0] positions in permuted order get rows of
// source 0, and so on. Each source's rows stay in order.
std::vector<MixtureSchedule::Pick> MixtureSchedule::block(int64_t index) const {
  if (!weights_.empty()) {
    std::vector<int64_t> rows = greedy_rows(index);
    return greedy_block(&rows);
  }
  const Stage& stage = stage_of(index);
  CHECK(&stage != &stages_.back() || !this->ends() || index == stage.first_block,
        "block {} is after the end, in block {}", index, stage.first_block);
  const std::vector<int64_t>& counts = stage.counts;
  const int64_t rows = stage.rows();
  if (rows == 0) return {};
  std::vector<int64_t> ends(counts.size());
  std::partial_sum(counts.begin(), counts.end(), ends.begin());
  std::vector<int64_t> next = given_before(index);
  const Permutation order(rows, seed_, static_cast<uint64_t>(index));
  std::vector<Pick> picks;
  picks.reserve(static_cast<size_t>(rows));
  for (int64_t place = 0; place < rows; ++place) {
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

namespace {

using Rows = std::vector<std::optional<int64_t>>;

// Returns the weights with 0 for exhausted sources.
std::vector<double> weights_left(std::vector<double> weights, const Rows& left) {
  for (size_t i = 0; i < weights.size(); ++i)
    if (left[i] == 0) weights[i] = 0.0;
  return weights;
}

bool has_any(const std::vector<double>& weights) {
  return std::ranges::any_of(weights, [](double weight) { return weight > 0.0; });
}

// Returns how many such blocks the rows suffice for, at most `most`.
int64_t whole_blocks(const std::vector<int64_t>& counts, const Rows& left, int64_t most) {
  for (size_t i = 0; i < counts.size(); ++i)
    if (left[i] && counts[i] > 0) most = std::min(most, *left[i] / counts[i]);
  return most;
}

// Returns the counts of a block in which some source is exhausted: it gives all its remaining rows,
// and the others share the rest by weight, which may exhaust them in turn.
std::vector<int64_t> counts_where_sources_leave(int64_t block_size, std::vector<double> weights,
                                                const Rows& left) {
  std::vector<int64_t> counts(weights.size());
  int64_t room = block_size;
  while (has_any(weights)) {
    const std::vector<int64_t> shares = apportion_rows(weights, room);
    bool fits = true;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (weights[i] == 0.0 || !left[i] || shares[i] <= *left[i]) continue;
      fits = false;
      counts[i] = *left[i];
      room -= counts[i];
      weights[i] = 0.0;
    }
    if (!fits) continue;
    for (size_t i = 0; i < shares.size(); ++i) counts[i] += shares[i];
    break;
  }
  return counts;
}

}  // namespace

std::vector<MixtureSchedule::Stage> stages_of_finite_sources(int64_t block_size,
                                                             const std::vector<WeightStage>& stages,
                                                             const Rows& rows) {
  std::vector<MixtureSchedule::Stage> found;
  Rows left = rows;
  const auto add = [&](int64_t first_block, const std::vector<int64_t>& counts, int64_t blocks) {
    found.push_back({first_block, counts});
    for (size_t i = 0; i < counts.size(); ++i)
      if (left[i]) *left[i] -= blocks * counts[i];
  };
  for (size_t i = 0; i < stages.size(); ++i) {
    const int64_t end =
        i + 1 < stages.size() ? stages[i + 1].first_block : std::numeric_limits<int64_t>::max();
    for (int64_t block = stages[i].first_block; block < end;) {
      const std::vector<double> weights = weights_left(stages[i].weights, left);
      std::vector<int64_t> counts(weights.size());
      if (has_any(weights)) counts = apportion_rows(weights, block_size);
      int64_t blocks = has_any(weights) ? whole_blocks(counts, left, end - block) : 0;
      if (blocks == 0) {
        counts = counts_where_sources_leave(block_size, weights, left);
        blocks = 1;
      }
      add(block, counts, blocks);
      if (found.back().rows() < block_size) return found;
      block += blocks;
    }
  }
  return found;
}

}  // namespace tessera
