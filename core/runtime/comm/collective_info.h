// SPDX-License-Identifier: Apache-2.0
// What a collective node asks for, read once: who takes part, and the arrays as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/region.h"
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
  // "all_gather over data [lm.x_layers[3].ffn, layers/feed_forward/linear.cc:41]".
  std::string text;

  int64_t bytes_in() const { return elements_in * dtype_bytes(dtype); }
  int64_t bytes_out() const { return elements_out * dtype_bytes(dtype); }
  int64_t size() const { return static_cast<int64_t>(group.size()); }
  // Enough for pieces of messages; it does not depend on processes.
  int64_t scratch_bytes() const;

  // Where the part of the member at place `index` lies in the longer array of a gather or scatter,
  // or in both of an all_reduce, which divides its elements as they lie.
  Subarray part(int64_t index) const;
  // The whole shorter array of a gather or scatter, as runs like those of a part.
  Subarray shard() const;
  // Of an all_to_all: what goes to the member at place `index`, in the operand; what comes from it,
  // in the result.
  Subarray part_to(int64_t index) const;
  Subarray part_from(int64_t index) const;

 private:
  friend CollectiveInfo read_collective(const Graph& graph, const Node& node);
  void read_axis(const Node& node, const Type& shard);
  void read_all_to_all(const Node& node, Type type);
  Subarray outer_axis(int64_t index) const;  // Of an all_to_all's array: a part along the first
  Subarray inner_axis(int64_t index) const;  // of its two axes, or along the second.

  // An array around the gathered or scattered axis: `outer_` runs of `run_` bytes in a shard. Of an
  // all_to_all: what goes to one device is [outer_, first_, middle_, second_] with runs of `run_`.
  int64_t outer_ = 1, first_ = 1, middle_ = 1, second_ = 1, run_ = 0;
  bool splits_first_ = false;
};

CollectiveInfo read_collective(const Graph& graph, const Node& node);

}  // namespace tessera
