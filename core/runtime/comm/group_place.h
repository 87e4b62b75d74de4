// SPDX-License-Identifier: Apache-2.0
// How the devices of a collective's group are spread over processes, as one of them sees it. What a
// process has for a device of another, or hears from one, passes through one of its members, the
// leader; so each byte crosses between two processes once.
#pragma once

#include <cstdint>
#include <vector>

#include "core/runtime/comm/communicator_state.h"

namespace tessera {

// A device of a group.
struct Member {
  int64_t device = 0;
  int64_t index = 0;     // Its place in the group.
  int64_t position = 0;  // Among the group's devices in its process, by number.
  int process = 0;
};

class GroupPlace {
 public:
  GroupPlace(const CommunicatorState& state, const std::vector<int64_t>& group, int64_t device);

  const Member& self() const { return self_; }
  // The members of this process, this one included, by position.
  const std::vector<Member>& local() const { return processes_[own_]; }
  // All processes that have members, ascending, each with them by position.
  const std::vector<std::vector<Member>>& processes() const { return processes_; }
  size_t own_process() const { return own_; }  // In processes().
  bool spans_processes() const { return processes_.size() > 1; }

  // The member of process `there` (an index of processes()) that deals with `member` of another.
  const Member& leader(size_t there, const Member& member) const {
    const std::vector<Member>& members = processes_[there];
    return members[static_cast<size_t>(member.position) % members.size()];
  }
  // The devices of other processes that this one is leader for, by process and position.
  const std::vector<Member>& peers() const { return peers_; }
  // The most peers of any member of the group.
  int64_t most_charges() const { return most_charges_; }

 private:
  std::vector<std::vector<Member>> processes_;
  size_t own_ = 0;
  Member self_;
  std::vector<Member> peers_;
  int64_t most_charges_ = 0;
};

}  // namespace tessera
