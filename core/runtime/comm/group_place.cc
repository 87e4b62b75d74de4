// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/group_place.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"

namespace tessera {

GroupPlace::GroupPlace(const CommunicatorState& state, const std::vector<int64_t>& group,
                       int64_t device) {
  std::map<int, std::vector<Member>> by_process;
  for (size_t i = 0; i < group.size(); ++i) {
    const int process = state.process_of(group[i]);
    by_process[process].push_back(
        {.device = group[i], .index = static_cast<int64_t>(i), .process = process});
  }
  for (auto& [process, members] : by_process) {
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return a.device < b.device; });
    for (size_t i = 0; i < members.size(); ++i) members[i].position = static_cast<int64_t>(i);
    if (process == state.process()) own_ = processes_.size();
    processes_.push_back(members);
  }
  bool found = false;
  for (const Member& member : local()) {
    if (member.device != device) continue;
    self_ = member;
    found = true;
  }
  CHECK(found, "device {} is not in its own group", device);

  for (size_t here = 0; here < processes_.size(); ++here) {
    std::vector<int64_t> peers(processes_[here].size(), 0);
    for (size_t there = 0; there < processes_.size(); ++there) {
      if (there == here) continue;
      for (const Member& member : processes_[there]) {
        const Member& by = leader(here, member);
        most_charges_ = std::max(most_charges_, ++peers[static_cast<size_t>(by.position)]);
        if (by.device == device) peers_.push_back(member);
      }
    }
  }
}

}  // namespace tessera
