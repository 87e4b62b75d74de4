// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/collective_kernel.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/backend/cpu/team.h"
#include "core/base/error.h"
#include "core/runtime/reduce_parts.h"

namespace tessera {
namespace {

// A device of the group that is in this process.
struct Member {
  int64_t device = 0;
  int64_t index = 0;  // Its place in the group.
};

// Copies `count` runs of `bytes` bytes that lie this far apart.
void copy_runs(const std::byte* from, int64_t from_step, std::byte* to, int64_t to_step,
               int64_t bytes, int64_t count) {
  if (from_step == bytes && to_step == bytes) {
    bytes *= count;
    count = std::min<int64_t>(count, 1);
  }
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_step, from + i * from_step, static_cast<size_t>(bytes));
}

class CollectiveKernel final : public Kernel {
 public:
  CollectiveKernel(FabricState& state, int64_t device, CollectiveInfo info)
      : state_(state),
        device_(device),
        shared_info_(std::make_shared<const CollectiveInfo>(std::move(info))),
        info_(*shared_info_),
        meeting_(state.meeting(info_.group)) {
    for (int64_t i = 0; i < info_.size(); ++i) {
      const int64_t each = info_.group[static_cast<size_t>(i)];
      if (state.is_local(each)) members_.push_back({each, i});
    }
    std::sort(members_.begin(), members_.end(),
              [](const Member& a, const Member& b) { return a.device < b.device; });
    while (members_[static_cast<size_t>(self_)].device != device) ++self_;
    sources_.resize(members_.size());
    CHECK(members_.size() == info_.group.size(), "a group of several processes");
  }

  void run(const LaunchArgs& args) override {
    state_.begin(device_, shared_info_);
    deadline_ = std::chrono::steady_clock::now() + state_.options().timeout;
    meeting_->offer(self_) = {args.inputs[0], args.outputs[0], &info_};
    meet();
    check_agreement();
    switch (info_.kind) {
      case CollectiveKind::kAllGather:
        all_gather(args.outputs[0]);
        break;
      case CollectiveKind::kReduceScatter:
        reduce_scatter(args.outputs[0]);
        break;
      case CollectiveKind::kAllReduce:
        all_reduce(args.outputs[0]);
        break;
      case CollectiveKind::kAllToAll:
        all_to_all(args.outputs[0]);
        break;
      case CollectiveKind::kPermute:
        permute(args.outputs[0]);
        break;
    }
    meet();
    state_.end(device_);
  }

 private:
  const std::byte* input_of(size_t member) const {
    return meeting_->offer(static_cast<int>(member)).input;
  }

  void meet() {
    switch (meeting_->meet(self_, deadline_)) {
      case Meeting::Outcome::kMet:
        return;
      case Meeting::Outcome::kStopped:
        state_.fail_stopped();
      case Meeting::Outcome::kTimedOut:
        break;
    }
    std::vector<int64_t> missing;
    for (size_t i = 0; i < members_.size(); ++i)
      if (meeting_->times(static_cast<int>(i)) < meeting_->times(self_))
        missing.push_back(members_[i].device);
    state_.fail_timed_out(device_, missing);
  }

  void check_agreement() const {
    for (size_t i = 0; i < members_.size(); ++i) {
      const CollectiveInfo& other = *meeting_->offer(static_cast<int>(i)).info;
      CHECK(other.signature == info_.signature, "device {} runs {}, device {} runs {}", device_,
            info_.signature, members_[i].device, other.signature);
    }
  }

  // What this device takes from a member is what that one sends.
  void count(size_t member, int64_t bytes) {
    if (static_cast<int>(member) != self_) state_.count_sent(members_[member].device, bytes);
  }

  void all_gather(std::byte* out) {
    const int64_t run = info_.run;
    for (size_t i = 0; i < members_.size(); ++i) {
      copy_runs(input_of(i), run, out + members_[i].index * run, info_.size() * run, run,
                info_.outer);
      count(i, info_.outer * run);
    }
  }

  void reduce_scatter(std::byte* out) {
    const int64_t run = info_.run, elements = run / dtype_bytes(info_.dtype);
    for (int64_t o = 0; o < info_.outer; ++o) {
      for (size_t i = 0; i < members_.size(); ++i)
        sources_[i] = input_of(i) + (o * info_.size() + info_.index) * run;
      reduce_parts(Reduction::kSum, info_.dtype, sources_, out + o * run, elements);
    }
    for (size_t i = 0; i < members_.size(); ++i) count(i, info_.outer * run);
  }

  // Each device reduces its part, and takes the others' from them.
  void all_reduce(std::byte* out) {
    const int64_t width = dtype_bytes(info_.dtype);
    const auto part = [&](int64_t index) {
      return part_of(info_.elements_in, static_cast<int>(index), static_cast<int>(info_.size()));
    };
    const Range own = part(info_.index);
    for (size_t i = 0; i < members_.size(); ++i) {
      sources_[i] = input_of(i) + own.begin * width;
      count(i, own.size() * width);
    }
    reduce_parts(info_.reduction, info_.dtype, sources_, out + own.begin * width, own.size());
    meet();
    for (size_t i = 0; i < members_.size(); ++i) {
      if (static_cast<int>(i) == self_) continue;
      const Range range = part(members_[i].index);
      const int64_t at = range.begin * width, bytes = range.size() * width;
      copy_runs(meeting_->offer(static_cast<int>(i)).output + at, bytes, out + at, bytes, bytes, 1);
      count(i, bytes);
    }
  }

  void all_to_all(std::byte* out) {
    for (size_t i = 0; i < members_.size(); ++i) {
      take_part(input_of(i), members_[i].index, out);
      count(i, info_.outer * info_.first * info_.middle * info_.second * info_.run);
    }
  }

  // From the input of the device at place `index` what it has for this one.
  void take_part(const std::byte* in, int64_t index, std::byte* out) const {
    const int64_t k = info_.size(), run = info_.run;
    for (int64_t o = 0; o < info_.outer; ++o) {
      for (int64_t f = 0; f < info_.first; ++f) {
        const std::byte* from = in;
        std::byte* to = out;
        int64_t from_step = info_.second * run, to_step = from_step;
        if (info_.splits_first) {  // [outer, k first, middle, second] -> [.., first, .., k second].
          to_step *= k;
          from += ((o * k + info_.index) * info_.first + f) * info_.middle * from_step;
          to += (o * info_.first + f) * info_.middle * to_step + index * info_.second * run;
        } else {  // [outer, first, middle, k second] -> [.., k first, .., second].
          from_step *= k;
          from +=
              (o * info_.first + f) * info_.middle * from_step + info_.index * info_.second * run;
          to += ((o * k + index) * info_.first + f) * info_.middle * to_step;
        }
        copy_runs(from, from_step, to, to_step, info_.second * run, info_.middle);
      }
    }
  }

  void permute(std::byte* out) {
    const int64_t bytes = info_.elements_in * dtype_bytes(info_.dtype);
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].device != info_.from) continue;
      copy_runs(input_of(i), bytes, out, bytes, bytes, 1);
      count(i, bytes);
    }
  }

  FabricState& state_;
  int64_t device_;
  std::shared_ptr<const CollectiveInfo> shared_info_;
  const CollectiveInfo& info_;
  std::shared_ptr<Meeting> meeting_;
  std::vector<Member> members_;  // By device number, as at the meeting.
  int self_ = 0;                 // Among them.
  std::vector<const std::byte*> sources_;
  FabricState::Deadline deadline_;
};

}  // namespace

std::unique_ptr<Kernel> make_collective_kernel(FabricState& state, int64_t device,
                                               const Graph& graph, const Node& node) {
  CollectiveInfo info = read_collective(graph, node);
  CHECK(info.group[static_cast<size_t>(info.index)] == device, "device {} at place {} of a group",
        device, info.index);
  return std::make_unique<CollectiveKernel>(state, device, std::move(info));
}

}  // namespace tessera
