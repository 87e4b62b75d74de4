// SPDX-License-Identifier: Apache-2.0
// The group of a collective node, how it is spread over processes, and the byte layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/region.h"
#include "core/graph/graph.h"

namespace tessera {

enum class Reduction { kSum, kMax };

struct CollectiveInfo {
  const OpDef* op = nullptr;
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kF32;
  std::vector<int64_t> group;  // Device numbers.
  int64_t index = 0;           // Position of this device in `group`.
  int64_t to = 0, from = 0;    // Peers of a permute, send or receive: device numbers.
  int64_t elements_in = 0, elements_out = 0;  // 0 where there is no operand or no result.
  // Op, mesh axes, types and axes; equal on all members. A send and its receive have the same.
  std::string signature;
  // "all_gather over data [lm.x_layers[3].ffn, layers/feed_forward/feed_forward.cc:41]".
  std::string text;

  int64_t bytes_in() const { return elements_in * dtype_bytes(dtype); }
  int64_t bytes_out() const { return elements_out * dtype_bytes(dtype); }
  int64_t size() const { return std::ssize(group); }
  // Returns enough bytes for pieces of messages, independent of the number of processes.
  int64_t scratch_bytes() const;

  // Returns the part of member `index` in the longer array of an all_gather or reduce_scatter, or
  // in both arrays of an all_reduce, which are divided into contiguous parts.
  Subarray part(int64_t index) const;
  // Returns the whole shorter array of an all_gather or reduce_scatter, with the runs of a part.
  Subarray shard() const;
  // Return the part of an all_to_all's operand that is sent to member `index`, and the part of its
  // result that is received from it.
  Subarray part_to(int64_t index) const;
  Subarray part_from(int64_t index) const;

 private:
  friend CollectiveInfo read_collective(const Graph& graph, const Node& node);
  void read_transfer(const Node& node, const Type& type);
  void read_axis(const Node& node, const Type& shard);
  void read_all_to_all(const Node& node, Type type);
  // Return the parts of an all_to_all's arrays along the first and the second of its two axes.
  Subarray outer_axis(int64_t index) const;
  Subarray inner_axis(int64_t index) const;

  // A shard of an all_gather or reduce_scatter is `outer_` runs of `run_` bytes. The data that an
  // all_to_all sends to one device have the shape [outer_, first_, middle_, second_] of such runs.
  int64_t outer_ = 1, first_ = 1, middle_ = 1, second_ = 1, run_ = 0;
  bool splits_first_ = false;
};

CollectiveInfo read_collective(const Graph& graph, const Node& node);

// CHECKs that two devices that have met run the same collective.
void require_same_collective(int64_t device, const CollectiveInfo& info, int64_t other_device,
                             const CollectiveInfo& other);

// A device of a collective's group.
struct Member {
  int64_t device = 0;
  int64_t index = 0;     // Position in the group.
  int64_t position = 0;  // Position among the group's devices of its process, by device number.
  int process = 0;
};

// The spread of a collective's group over processes, as seen by one of its devices. For each remote
// device, one device of a process is the leader: it exchanges the process's messages with that
// device, so each byte is sent between two processes once.
class GroupTopology {
 public:
  GroupTopology(const std::vector<int64_t>& group, int64_t device, int64_t devices_per_process);

  const Member& self() const { return self_; }
  // Returns the members of this process, itself included, by position.
  const std::vector<Member>& local() const { return processes_[own_]; }
  // Returns the members of each process that has any, by process and position.
  const std::vector<std::vector<Member>>& processes() const { return processes_; }
  size_t own_process() const { return own_; }  // Index in processes().
  bool spans_processes() const { return processes_.size() > 1; }
  std::vector<Member> remote() const;  // Returns the members of other processes.

  // Returns the leader in process `there` (an index of processes()) for a remote `member`.
  const Member& leader(size_t there, const Member& member) const {
    const std::vector<Member>& members = processes_[there];
    return members[static_cast<size_t>(member.position) % members.size()];
  }
  // Returns the remote devices that this device is the leader for, by process and position.
  const std::vector<Member>& peers() const { return peers_; }
  // Returns the largest number of peers of any member.
  int64_t max_peers() const { return max_peers_; }

 private:
  std::vector<std::vector<Member>> processes_;
  size_t own_ = 0;
  Member self_;
  std::vector<Member> peers_;
  int64_t max_peers_ = 0;
};

}  // namespace tessera
