// SPDX-License-Identifier: Apache-2.0
// Which source each row of a mixture comes from. The stream is cut into blocks; each holds exactly
// so many rows of each source as the weights say, in an order of its own. So the number of a
// source's row at any place is known without reading what comes before: a mixture can be entered
// anywhere. The stream may end: with a block that has fewer rows. Nothing here reads data.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace tessera {

// Rows of a block by weight: they add up to `block_size`, and each is within one of its share. What
// is over goes to the largest remainders, of equal ones to the first.
std::vector<int64_t> rows_by_weight(const std::vector<double>& weights, int64_t block_size);

class MixtureSchedule {
 public:
  // From its block on, until the next stage.
  struct Stage {
    int64_t first_block = 0;
    std::vector<int64_t> counts;  // Rows of each source in a block.
    int64_t rows() const;         // Of a block: the sum of the counts.
    bool operator==(const Stage&) const = default;
  };
  // A row of a source, by its number among the source's.
  struct Pick {
    int64_t source = 0;
    int64_t number = 0;
  };

  // The first stage begins at block 0, and each after the one before it. Blocks are full, but for
  // those of the last stage: if they are not, the stream ends with the first of them.
  MixtureSchedule(int64_t block_size, uint64_t seed, std::vector<Stage> stages);

  int64_t block_size() const { return block_size_; }
  // Rows of the whole stream; nullopt if it does not end.
  std::optional<int64_t> size() const;
  // The rows of a block, in order.
  std::vector<Pick> block(int64_t index) const;
  // How many rows of each source come before a block.
  std::vector<int64_t> given_before(int64_t block) const;
  // The row of the stream that is the source's row `number`; nullopt if the stream has none.
  std::optional<int64_t> row_of(int64_t source, int64_t number) const;

 private:
  const Stage& stage_of(int64_t block) const;
  bool ends() const { return stages_.back().rows() < block_size_; }

  int64_t block_size_;
  uint64_t seed_;
  std::vector<Stage> stages_;
};

// Weights of all sources, from a block on.
struct WeightStage {
  int64_t first_block = 0;
  std::vector<double> weights;
};

// Stages by weight for sources of which some have only so many `rows` (nullopt: no limit). In the
// block in which a source gives its last row, and from then on, the others share by their weights
// the rows that it does not give. The stream ends once no source that has a weight has a row left.
std::vector<MixtureSchedule::Stage> stages_of_finite_sources(
    int64_t block_size, const std::vector<WeightStage>& stages,
    const std::vector<std::optional<int64_t>>& rows);

}  // namespace tessera
