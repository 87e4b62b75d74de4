// SPDX-License-Identifier: Apache-2.0
// An input opened by several hosts of a simulated run, read as one: their rows put together, their
// ends awaited, their states united as a checkpoint unites them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inputs/base_input.h"

namespace tessera {

using RowsOfHosts = std::vector<std::vector<RowRange>>;

// Ways to share a batch of eight rows: 1, 2, 4 and 8 hosts alike, uneven ones, hosts that read the
// same rows, and ranges that lie apart.
const std::vector<RowsOfHosts>& shares_of_eight();
std::string text_of(const RowsOfHosts& rows);

class Hosts {
 public:
  using Open = std::function<std::unique_ptr<BaseInput>()>;
  // Host 0 is attached first: it may freeze a corpus in `run_directory`.
  Hosts(const Open& open, const RowsOfHosts& rows, const std::filesystem::path& run_directory = {});

  // The global batch; nullopt when no host has any more. Rows that several hosts read must agree.
  std::optional<Batch> next();
  InputState state() const;
  void restore(const InputState& state);
  void reset();

 private:
  RowsOfHosts rows_;
  std::vector<std::unique_ptr<BaseInput>> inputs_;
};

// The names and bytes of two batches are the same.
bool same_batch(const std::optional<Batch>& a, const std::optional<Batch>& b);

}  // namespace tessera
