// SPDX-License-Identifier: Apache-2.0
// The source of each row of a mixture: counts are exact in every block, and no row of a source is
// skipped or repeated, for any weights and stages.
#include "inputs/mixture/mixture_schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/source_tree.h"

namespace tessera {
namespace {

using Counts = std::vector<int64_t>;

TEST_CASE("rows of a block sum to its size and are within one of their share") {
  REQUIRE(apportion_rows({1, 1, 2}, 8) == Counts{2, 2, 4});
  REQUIRE(apportion_rows({1, 1, 1}, 8) == Counts{3, 3, 2});
  REQUIRE(apportion_rows({0.7, 0, 0.3}, 10) == Counts{7, 0, 3});
  REQUIRE(apportion_rows({5}, 3) == Counts{3});
  std::mt19937 random(4);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<double> weights(1 + random() % 6);
    for (double& weight : weights)
      weight = random() % 4 == 0 ? 0.0 : static_cast<double>(random() % 1000) * 0.37;
    weights[0] += 1.0;
    const auto block = static_cast<int64_t>(1 + random() % 3000);
    const Counts counts = apportion_rows(weights, block);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    REQUIRE(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == block);
    for (size_t i = 0; i < counts.size(); ++i) {
      const double share = weights[i] / total * static_cast<double>(block);
      REQUIRE(std::abs(static_cast<double>(counts[i]) - share) < 1.0 + 1e-6);
      if (weights[i] == 0.0) REQUIRE(counts[i] == 0);
    }
  }
}

struct Mixed {
  MixtureSchedule schedule;
  std::vector<MixtureSchedule::Stage> stages;
  size_t sources;
};

Mixed any_schedule(std::mt19937& random) {
  const size_t sources = 1 + random() % 4;
  const auto block_size = static_cast<int64_t>(1 + random() % 50);
  std::vector<MixtureSchedule::Stage> stages;
  for (int64_t first = 0; first < 12; first += static_cast<int64_t>(1 + random() % 6)) {
    std::vector<double> weights(sources);
    for (double& weight : weights) weight = static_cast<double>(random() % 3);
    weights[random() % sources] += 1.0;
    stages.push_back({first, apportion_rows(weights, block_size)});
  }
  return {MixtureSchedule(block_size, random(), stages), stages, sources};
}

TEST_CASE("counts are exact in every block, and each source's rows are consecutive") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const Mixed mixed = any_schedule(random);
    Counts next(mixed.sources);
    size_t stage = 0;
    for (int64_t block = 0; block < 15; ++block) {
      while (stage + 1 < mixed.stages.size() && mixed.stages[stage + 1].first_block <= block)
        ++stage;
      REQUIRE(mixed.schedule.given_before(block) == next);
      Counts counts(mixed.sources);
      for (const MixtureSchedule::Pick& pick : mixed.schedule.block(block)) {
        const auto source = static_cast<size_t>(pick.source);
        REQUIRE(pick.number == next[source]++);
        ++counts[source];
      }
      REQUIRE(counts == mixed.stages[stage].counts);
    }
  }
}

TEST_CASE("the stream row of a source's row is computed without reading") {
  std::mt19937 random(6);
  for (int trial = 0; trial < 100; ++trial) {
    const Mixed mixed = any_schedule(random);
    for (int64_t block = 0; block < 15; ++block) {
      const std::vector<MixtureSchedule::Pick> picks = mixed.schedule.block(block);
      for (size_t place = 0; place < picks.size(); ++place)
        REQUIRE(mixed.schedule.row_of(picks[place].source, picks[place].number) ==
                block * mixed.schedule.block_size() + static_cast<int64_t>(place));
    }
  }
  // An excluded source has no further row.
  const MixtureSchedule ending(4, 1, {{0, {3, 1}}, {2, {4, 0}}});
  REQUIRE(ending.row_of(1, 1).has_value());
  REQUIRE_FALSE(ending.row_of(1, 2));
}

TEST_CASE("each block has its own order, which depends on the seed") {
  const auto sources = [](const MixtureSchedule& schedule, int64_t block) {
    std::vector<int64_t> of;
    for (const auto& pick : schedule.block(block)) of.push_back(pick.source);
    return of;
  };
  const MixtureSchedule one(100, 1, {{0, {50, 30, 20}}}), other(100, 2, {{0, {50, 30, 20}}});
  REQUIRE(sources(one, 0) != sources(one, 1));
  REQUIRE(sources(one, 0) != sources(other, 0));
  const std::vector<int64_t> first = sources(one, 0);
  REQUIRE_FALSE(std::is_sorted(first.begin(), first.end()));
}

using Rows = std::vector<std::optional<int64_t>>;

TEST_CASE("rows of finite sources all occur once, by weight, until none is left") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 500; ++trial) {
    const size_t sources = 1 + random() % 5;
    const auto block_size = static_cast<int64_t>(1 + random() % 40);
    std::vector<double> weights(sources);
    Rows rows(sources);
    int64_t total = 0;
    for (size_t i = 0; i < sources; ++i) {
      weights[i] = static_cast<double>(1 + random() % 9);
      rows[i] = static_cast<int64_t>(1 + random() % 300);
      total += *rows[i];
    }
    const auto stages = stages_of_finite_sources(block_size, {{0, weights}}, rows);
    const MixtureSchedule schedule(block_size, random(), stages);
    REQUIRE(schedule.size() == total);
    Counts next(sources);
    for (int64_t block = 0; block * block_size < total; ++block) {
      REQUIRE(schedule.given_before(block) == next);
      Counts counts(sources);
      for (const MixtureSchedule::Pick& pick : schedule.block(block)) {
        REQUIRE(pick.number == next[static_cast<size_t>(pick.source)]++);
        ++counts[static_cast<size_t>(pick.source)];
      }
      // Remaining sources have at least their share.
      int64_t room = block_size;
      std::vector<double> staying = weights;
      for (size_t i = 0; i < sources; ++i)
        if (next[i] == rows[i]) {
          room -= counts[i];
          staying[i] = 0.0;
        }
      if (std::accumulate(staying.begin(), staying.end(), 0.0) == 0.0) continue;
      // One row of rounding, and one per source that leaves.
      const double weight = std::accumulate(staying.begin(), staying.end(), 0.0);
      for (size_t i = 0; i < sources; ++i) {
        const double share = staying[i] / weight * static_cast<double>(room);
        if (staying[i] > 0.0)
          REQUIRE(std::abs(static_cast<double>(counts[i]) - share) <
                  static_cast<double>(sources) + 1e-6);
      }
      REQUIRE(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == block_size);
    }
    REQUIRE(schedule.given_before(total / block_size + 5) == next);
    for (size_t i = 0; i < sources; ++i) REQUIRE(next[i] == rows[i]);
  }
}

TEST_CASE("a source leaves in the block of its last row, and unbounded ones never do") {
  using Stage = MixtureSchedule::Stage;
  REQUIRE(stages_of_finite_sources(4, {{0, {1, 1}}}, {std::nullopt, 5}) ==
          std::vector<Stage>{{0, {2, 2}}, {2, {3, 1}}, {3, {4, 0}}});
  REQUIRE(stages_of_finite_sources(4, {{0, {1, 1}}, {1, {3, 1}}, {9, {1, 1}}},
                                   {std::nullopt, std::nullopt}) ==
          std::vector<Stage>{{0, {2, 2}}, {1, {3, 1}}, {9, {2, 2}}});
  // In one block; and with the last row of a full block.
  REQUIRE(stages_of_finite_sources(4, {{0, {1, 1}}}, {1, 1}) == std::vector<Stage>{{0, {1, 1}}});
  REQUIRE(stages_of_finite_sources(4, {{0, {1, 1}}}, {4, 4}) ==
          std::vector<Stage>{{0, {2, 2}}, {2, {0, 0}}});
  // A stage with only exhausted sources ends the stream, whatever follows.
  REQUIRE(stages_of_finite_sources(4, {{0, {1, 0}}, {9, {0, 1}}}, {6, 50}) ==
          std::vector<Stage>{{0, {4, 0}}, {1, {2, 0}}});
}

TEST_CASE("the greedy order is that of Megatron-core, from any row") {
  std::istringstream blends(read_file(source_root() / "tests/golden/blends.txt"));
  int checked = 0;
  for (std::string line; std::getline(blends, line); ++checked) {
    INFO(line.substr(0, 60));
    std::istringstream words(line.substr(0, line.find(':')));
    const std::string expected = line.substr(line.find(':') + 1);
    std::vector<double> weights{std::istream_iterator<double>(words), {}};
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= sum;
    for (const size_t from : {0, 1, 2, 777}) {
      Counts before(weights.size());
      for (size_t i = 0; i < from; ++i) ++before[static_cast<size_t>(expected[i] - '0')];
      const MixtureSchedule schedule(10, weights, before);
      Counts next(weights.size());
      for (size_t row = from; row + 10 <= expected.size(); row += 10) {
        const auto index = static_cast<int64_t>(row - from) / 10;
        REQUIRE(schedule.given_before(index) == next);
        std::string block;
        for (const MixtureSchedule::Pick& pick : schedule.block(index)) {
          block += static_cast<char>('0' + pick.source);
          REQUIRE(pick.number == next[static_cast<size_t>(pick.source)]++);
        }
        REQUIRE(block == expected.substr(row, 10));
      }
    }
  }
  REQUIRE(checked == 7);
}

}  // namespace
}  // namespace tessera
