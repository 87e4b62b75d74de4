// SPDX-License-Identifier: Apache-2.0
// What a collective node asks for, read once: who takes part, and the arrays as bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/graph.h"

namespace tessera {

enum class CollectiveKind { kAllGather, kReduceScatter, kAllReduce, kAllToAll, kPermute };
enum class Reduction { kSum, kMax };

struct CollectiveInfo {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kF32;
  std::vector<int64_t> group;  // Device numbers.
  int64_t index = 0;           // This device's place in it.
  int64_t to = 0, from = 0;    // Of a permute: device numbers.
  int64_t elements_in = 0, elements_out = 0;
  // What the group's members must agree on: op, mesh axes, types, axes.
  std::string signature;
  // "all_gather over data [lm.x_layers[3].ffn, layers/linear.cc:41]".
  std::string text;

  // The axis that is gathered or scattered, in bytes of one shard: `outer` runs of `run` bytes.
  int64_t outer = 1, run = 0;
  // Of an all_to_all: the sizes of a part that goes to one device, [outer, first, middle, second]
  // with runs of `run` bytes; which of the two axes is the split one.
  int64_t first = 1, middle = 1, second = 1;
  bool splits_first = false;

  int64_t size() const { return static_cast<int64_t>(group.size()); }
};

CollectiveInfo read_collective(const Graph& graph, const Node& node);

}  // namespace tessera
