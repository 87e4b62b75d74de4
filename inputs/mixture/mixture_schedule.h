// SPDX-License-Identifier: Apache-2.0
// The source of each row of a mixture, without reading data. The stream is divided into blocks that
// hold exact numbers of rows of each source, by weight, in a random order. Row numbers within a
// source are computed without reading earlier rows, which gives random access. A finite stream ends
// with a shorter block. Or rows follow the rule of Megatron-LM, which is computed from the start.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera {

// Apportions `block_size` rows by weight and largest remainder; ties go to the first source.
std::vector<int64_t> apportion_rows(const std::vector<double>& weights, int64_t block_size);

class MixtureSchedule {
 public:
  // Applies from its block until the next stage.
  struct Stage {
    int64_t first_block = 0;
    std::vector<int64_t> counts;  // Rows of each source per block.
    int64_t rows() const;         // The sum of the counts.
    bool operator==(const Stage&) const = default;
  };
  // A row of a source.
  struct Pick {
    int64_t source = 0;
    int64_t number = 0;
  };

  // The first stage begins at block 0; stages are in order. Only the last stage may have blocks
  // that are not full: then the stream ends with its first block.
  MixtureSchedule(int64_t block_size, uint64_t seed, std::vector<Stage> stages);

  // The rule of Megatron-core's BlendedDataset (build_blending_indices): row i is of the source
  // with the largest weight * max(i, 1) - rows, the first of them; the weights add up to 1, and 0
  // excludes a source. `rows`: of each source, which the same weights have given before.
  MixtureSchedule(int64_t block_size, std::vector<double> weights, std::vector<int64_t> rows);

  int64_t block_size() const { return block_size_; }
  // Returns the rows of the stream; nullopt if unbounded.
  std::optional<int64_t> size() const;
  // Returns the rows of a block, in order.
  std::vector<Pick> block(int64_t index) const;
  // Returns the rows of each source before a block.
  std::vector<int64_t> given_before(int64_t block) const;
  // Returns the stream row that is row `number` of the source; nullopt if the stream has no such
  // row.
  std::optional<int64_t> row_of(int64_t source, int64_t number) const;

 private:
  const Stage& stage_of(int64_t block) const;
  bool ends() const { return !stages_.empty() && stages_.back().rows() < block_size_; }
  // Returns the sources of a block by Megatron's rule, and adds to the rows of each.
  std::vector<Pick> greedy_block(std::vector<int64_t>* rows) const;
  const std::vector<int64_t>& greedy_rows(int64_t block) const;

  int64_t block_size_;
  uint64_t seed_ = 0;
  std::vector<Stage> stages_;
  std::vector<double> weights_;                            // Of Megatron's rule; else empty.
  mutable std::vector<std::vector<int64_t>> rows_before_;  // Of each block up to the last one used.
};

// Weights of all sources from a block on.
struct WeightStage {
  int64_t first_block = 0;
  std::vector<double> weights;
};

// Returns stages for sources of which some have a limited number of `rows` (nullopt: no limit).
// From the block that exhausts a source on, the others share its rows by weight. The stream ends
// when all sources with a weight are exhausted.
std::vector<MixtureSchedule::Stage> stages_of_finite_sources(
    int64_t block_size, const std::vector<WeightStage>& stages,
    const std::vector<std::optional<int64_t>>& rows);

}  // namespace tessera
