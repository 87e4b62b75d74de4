// SPDX-License-Identifier: Apache-2.0
#include "core/passes/spmd/reshard_plan.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "core/base/error.h"
#include "core/ops/collective.h"
#include "core/ops/layout.h"
#include "core/passes/spmd/reshard_moves.h"

namespace tessera {
namespace {

// Shortest path from layout to layout. Moves come in a fixed order and an equally good way found
// later is not taken, so the plan depends on nothing but its arguments. As the cheaper layout of
// two is left first, ways that shrink first and gather last win a tie.
class PlanSearch {
 public:
  PlanSearch(const ReshardMoves& moves, const LinkCosts& costs) : moves_(moves), costs_(costs) {}

  ReshardPlan run() {
    arrive(moves_.from(), {}, {}, 0, {});
    for (;;) {
      CHECK(!queue_.empty(), "no way between two layouts of one array");
      const Entry entry = queue_.top();
      queue_.pop();
      const auto found = places_.find(entry.layout);
      if (found->second.done) continue;
      found->second.done = true;
      if (entry.layout == moves_.to()) return plan();
      const Place place = found->second;
      moves_.each(entry.layout, [&](Move move) {
        LinkUse use = place.use;
        use += move.use;
        const LayoutKey result = move.result;
        arrive(result, std::move(move), entry.layout, place.steps + 1, use);
      });
    }
  }

 private:
  struct Place {
    Move by;
    LayoutKey from;
    LinkUse use;
    double seconds = 0.0;
    int64_t steps = 0;
    bool done = false;
  };
  struct Entry {
    double seconds = 0.0;
    int64_t steps = 0, number = 0;
    LayoutKey layout;
    bool operator<(const Entry& other) const {  // The best is the greatest.
      return std::tie(other.seconds, other.steps, other.number) < std::tie(seconds, steps, number);
    }
  };

  void arrive(const LayoutKey& layout, Move by, const LayoutKey& from, int64_t steps,
              const LinkUse& use) {
    const double seconds = use.seconds(costs_);
    const auto [found, fresh] = places_.try_emplace(layout);
    Place& place = found->second;
    if (!fresh && std::tie(place.seconds, place.steps) <= std::tie(seconds, steps)) return;
    place = {std::move(by), from, use, seconds, steps, false};
    queue_.push({seconds, steps, next_number_++, layout});
  }

  ReshardPlan plan() const {
    ReshardPlan plan;
    plan.use = places_.at(moves_.to()).use;
    for (LayoutKey at = moves_.to(); at != moves_.from(); at = places_.at(at).from)
      plan.steps.push_back(moves_.step(places_.at(at).by));
    std::reverse(plan.steps.begin(), plan.steps.end());
    return plan;
  }

  const ReshardMoves& moves_;
  const LinkCosts& costs_;
  std::map<LayoutKey, Place> places_;
  std::priority_queue<Entry> queue_;
  int64_t next_number_ = 0;
};

}  // namespace

const OpDef& step_op(StepKind kind) {
  switch (kind) {
    case StepKind::kSlice:
      return kSliceOp;
    case StepKind::kMask:
      return kMaskToOwnerOp;
    case StepKind::kPad:
      return kPadOp;
    case StepKind::kAllGather:
      return kAllGatherOp;
    case StepKind::kReduceScatter:
      return kReduceScatterOp;
    case StepKind::kAllReduce:
      return kAllReduceOp;
    case StepKind::kAllToAll:
      return kAllToAllOp;
    case StepKind::kPermute:
      return kPermuteOp;
  }
  CHECK(false, "an unknown step");
}

double LinkUse::seconds(const LinkCosts& costs) const {
  return static_cast<double>(ici_bytes) / costs.ici_bandwidth +
         static_cast<double>(dcn_bytes) / costs.dcn_bandwidth +
         static_cast<double>(ici_collectives) * costs.ici_latency +
         static_cast<double>(dcn_collectives) * costs.dcn_latency;
}

LinkUse& LinkUse::operator+=(const LinkUse& other) {
  ici_bytes += other.ici_bytes;
  dcn_bytes += other.dcn_bytes;
  ici_collectives += other.ici_collectives;
  dcn_collectives += other.dcn_collectives;
  return *this;
}

const ReshardPlan& ReshardPlanner::plan(const Type& from, const Type& to) {
  const auto [found, fresh] = plans_.try_emplace({from.text_sized(), to.text_sized()});
  if (fresh) {
    const ReshardMoves moves(from, to, mesh_);
    found->second = PlanSearch(moves, costs_).run();
  }
  return found->second;
}

std::vector<ReshardStep> plan_reshard(const Type& from, const Type& to, const Mesh& mesh,
                                      const LinkCosts& costs) {
  return ReshardPlanner(mesh, costs).plan(from, to).steps;
}

}  // namespace tessera
