// SPDX-License-Identifier: Apache-2.0
// The group and the byte layout of a collective node.
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
  int64_t index = 0;           // Of this device in it.
  int64_t to = 0, from = 0;    // Of a permute: device numbers.
  int64_t elements_in = 0, elements_out = 0;
  // Op, mesh axes, types and axes; the same on all members.
  std::string signature;
  // "all_gather over data [lm.x_layers[3].ffn, layers/feed_forward/feed_forward.cc:41]".
  std::string text;

  int64_t bytes_in() const { return elements_in * dtype_bytes(dtype); }
  int64_t bytes_out() const { return elements_out * dtype_bytes(dtype); }
  int64_t size() const { return static_cast<int64_t>(group.size()); }
  // Enough for pieces of messages. It does not depend on the number of processes.
  int64_t scratch_bytes() const;

  // The part of member `index` in the longer array of an all_gather or reduce_scatter, or in both
  // arrays of an all_reduce, which are divided into contiguous parts.
  Subarray part(int64_t index) const;
  // The whole shorter array of an all_gather or reduce_scatter, with the runs of a part.
  Subarray shard() const;
  // Of an all_to_all: what is sent to member `index`, in the operand; what is received from it, in
  // the result.
  Subarray part_to(int64_t index) const;
  Subarray part_from(int64_t index) const;

 private:
  friend CollectiveInfo read_collective(const Graph& graph, const Node& node);
  void read_axis(const Node& node, const Type& shard);
  void read_all_to_all(const Node& node, Type type);
  // The parts of an all_to_all's arrays along the first and the second of its two axes.
  Subarray outer_axis(int64_t index) const;
  Subarray inner_axis(int64_t index) const;

  // A shard of an all_gather or reduce_scatter is `outer_` runs of `run_` bytes. What an all_to_all
  // sends to one device has the shape [outer_, first_, middle_, second_] of runs of `run_` bytes.
  int64_t outer_ = 1, first_ = 1, middle_ = 1, second_ = 1, run_ = 0;
  bool splits_first_ = false;
};

CollectiveInfo read_collective(const Graph& graph, const Node& node);

}  // namespace tessera
