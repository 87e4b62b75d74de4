// SPDX-License-Identifier: Apache-2.0
// A fingerprint of what a traced training step computes: a hash of each operation by its operands,
// without layouts, gradients (which follow from the forward pass), names and source lines. Runs
// compare it when they resume. It is not a proof: it does not see what a kernel does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

class Computation {
 public:
  explicit Computation(const Graph& step);

  // Eight hexadecimal digits of the loss and all updates, then of each operation.
  std::string record() const;

  // Nullopt if the loss and all updates are those of the recorded step. Else the first operation,
  // in the order of the graph, that the recorded step does not have: "gelu in lm.x_layers[0].ffn"
  // and the source line.
  std::optional<std::string> difference(std::string_view record) const;

 private:
  struct Operation {
    uint32_t hash = 0;
    std::string text;
  };
  // The hashes of a graph's values, given those of its inputs.
  using Hashes = IndexedVector<ValueId, uint64_t>;
  Hashes hashes(const Graph& graph, const std::vector<uint64_t>& inputs);
  void hash_node(const Graph& graph, const Node& node, Hashes* hashes);
  void hash_loop(const Node& node, Hashes* hashes);

  uint32_t results_ = 0;
  std::vector<Operation> operations_;
};

}  // namespace tessera
