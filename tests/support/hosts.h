// SPDX-License-Identifier: Apache-2.0
// An input opened by several hosts of a simulated run and read as one: it assembles their rows into
// global batches and merges their states as a checkpoint does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inputs/base_input.h"

namespace tessera {

using RowsOfHosts = std::vector<std::vector<RowRange>>;

// Distributions of a batch of eight rows over hosts: equal parts for 1, 2, 4 and 8 hosts, unequal
// parts, hosts that read the same rows, and several separate ranges per host.
const std::vector<RowsOfHosts>& shares_of_eight();
std::string text_of(const RowsOfHosts& rows);

class Hosts {
 public:
  using Open = std::function<std::unique_ptr<BaseInput>()>;
  // Host 0 is attached first: it may freeze a corpus in `run_directory`.
  Hosts(const Open& open, const RowsOfHosts& rows, const std::filesystem::path& run_directory = {});

  // The global batch; nullopt at the end of all hosts. Rows that several hosts read must be equal.
  std::optional<Batch> next();
  InputState state() const;
  void restore(const InputState& state);
  void reset();

 private:
  RowsOfHosts rows_;
  std::vector<std::unique_ptr<BaseInput>> inputs_;
};

// Whether two batches have the same names and bytes.
bool same_batch(const std::optional<Batch>& a, const std::optional<Batch>& b);

}  // namespace tessera
