// SPDX-License-Identifier: Apache-2.0
#include "core/passes/schedule/overlap.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/ops/collective.h"
#include "core/passes/schedule/all_gather_prefetch.h"

namespace tessera {
namespace {

bool overlaps(FlatValue a, FlatValue b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

int64_t bytes_of(const FlatLaunch& launch) {
  int64_t bytes = 0;
  for (const FlatValue& value : launch.inputs) bytes += value.bytes;
  for (const FlatValue& value : launch.outputs) bytes += value.bytes;
  return bytes;
}

// Puts starts and waits for the collectives of launches that are in their order already.
class Splitter {
 public:
  explicit Splitter(FlatProgram& program) : program_(program) {}

  // `ahead` marks the collectives that were moved forward on purpose.
  void split(std::vector<FlatLaunch> launches, const std::vector<bool>& ahead, int64_t budget) {
    for (size_t i = 0; i < launches.size(); ++i) {
      FlatLaunch& launch = launches[i];
      const Node& node = launch.graph->node(launch.node);
      const bool follows = touches_deferred(launch);
      const bool is_start = is_collective(node);
      if (!is_start && node.phase == Phase::kUpdate && (follows || needed(launch) > 0)) {
        deferred_.push_back(std::move(launch));
        continue;
      }
      if (follows) run_deferred();
      if (is_start) {
        start(std::move(launch), ahead[i], budget);
      } else {
        wait_for(needed(launch));
        result_.push_back(std::move(launch));
      }
    }
    run_deferred();
    wait_for(open_.size());
    program_.launches = std::move(result_);
  }

 private:
  struct Open {
    int32_t start = kNone;
    int64_t bytes = 0;  // Of those that count against the budget.
    std::vector<FlatValue> results;
  };

  void start(FlatLaunch launch, bool ahead, int64_t budget) {
    Open open{static_cast<int32_t>(result_.size()), ahead ? 0 : bytes_of(launch), {}};
    size_t early = 0;
    for (int64_t under_way = under_way_; open.bytes > 0 && under_way + open.bytes > budget;) {
      if (early == open_.size()) break;
      under_way -= open_[early++].bytes;
    }
    wait_for(early);
    open.start = static_cast<int32_t>(result_.size());
    for (const FlatValue& value : launch.outputs) open.results.push_back(program_.root(value));
    under_way_ += open.bytes;
    launch.kind = LaunchKind::kStart;
    open_.push_back(std::move(open));
    result_.push_back(std::move(launch));
  }

  // How many of those under way must be waited for, for what this launch reads to be there.
  size_t needed(const FlatLaunch& launch) const {
    size_t count = 0;
    each_value(launch, [&](FlatValue value) {
      const FlatValue root = program_.root(value);
      for (size_t i = count; i < open_.size(); ++i) {
        const std::vector<FlatValue>& results = open_[i].results;
        if (std::any_of(results.begin(), results.end(),
                        [&](FlatValue result) { return overlaps(result, root); }))
          count = i + 1;
      }
    });
    return count;
  }

  // Updates wait until their gradients have been waited for anyway, with what depends on them.
  bool touches_deferred(const FlatLaunch& launch) const {
    bool touches = false;
    each_value(launch, [&](FlatValue value) {
      const FlatValue root = program_.root(value);
      for (const FlatLaunch& deferred : deferred_)
        for (const FlatValue& result : deferred.outputs)
          touches = touches || overlaps(program_.root(result), root);
    });
    return touches;
  }

  void run_deferred() {
    while (!deferred_.empty()) {
      wait_for(needed(deferred_.front()));
      run_ready();
    }
  }

  void run_ready() {
    while (!deferred_.empty() && needed(deferred_.front()) == 0) {
      result_.push_back(std::move(deferred_.front()));
      deferred_.pop_front();
    }
  }

  template <typename Visit>
  static void each_value(const FlatLaunch& launch, const Visit& visit) {
    for (const FlatValue& value : launch.inputs) visit(value);
    for (const FlatValue& value : launch.outputs) visit(value);
  }

  // The oldest of those under way: when one is done, so are all before it.
  void wait_for(size_t count) {
    for (; count > 0; --count) {
      const Open& oldest = open_.front();
      const FlatLaunch& start = result_[static_cast<size_t>(oldest.start)];
      FlatLaunch wait{.graph = start.graph, .node = start.node, .inputs = start.inputs};
      wait.inputs.insert(wait.inputs.end(), start.outputs.begin(), start.outputs.end());
      if (start.scratch != kNone)
        wait.inputs.push_back(
            {start.scratch, 0, program_.buffers[static_cast<size_t>(start.scratch)].bytes});
      wait.kind = LaunchKind::kWait;
      wait.waits_for = oldest.start;
      under_way_ -= oldest.bytes;
      open_.pop_front();
      result_.push_back(std::move(wait));
      run_ready();
    }
  }

  FlatProgram& program_;
  std::vector<FlatLaunch> result_;
  std::deque<Open> open_;
  std::deque<FlatLaunch> deferred_;
  int64_t under_way_ = 0;
};

// The bytes that the chosen collectives of one layer take: the most of those of any loop's body or,
// where layers are unrolled, of any "layers[i]" of a path; in one phase.
template <typename Chosen>
int64_t layer_bytes(const FlatProgram& program, const Chosen& chosen) {
  std::map<std::pair<const Graph*, std::string>, int64_t> layers;
  std::set<std::pair<const Graph*, NodeId>> seen;  // One iteration of a loop is a layer.
  int64_t largest_alone = 0, largest_layer = 0;
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const FlatLaunch& launch = program.launches[i];
    const int64_t bytes = chosen(i);
    if (bytes == 0 || !seen.insert({launch.graph, launch.node}).second) continue;
    const Node& node = launch.graph->node(launch.node);
    largest_alone = std::max(largest_alone, bytes);
    const size_t end = node.path.rfind(']');
    if (launch.graph == program.graph.get() && end == std::string::npos) continue;
    const std::string layer =
        launch.graph == program.graph.get() ? node.path.substr(0, end + 1) : "";
    int64_t& sum = layers[{launch.graph, layer + std::string(phase_name(node.phase))}];
    largest_layer = std::max(largest_layer, sum += bytes);
  }
  return layers.empty() ? largest_alone : largest_layer;
}

// Whether `later` must stay behind `earlier`.
bool depends(const FlatProgram& program, const FlatLaunch& later, const FlatLaunch& earlier) {
  const auto meet = [&](const std::vector<FlatValue>& ones, const std::vector<FlatValue>& others) {
    return std::any_of(ones.begin(), ones.end(), [&](FlatValue one) {
      return std::any_of(others.begin(), others.end(), [&](FlatValue other) {
        return overlaps(program.root(one), program.root(other));
      });
    });
  };
  return meet(earlier.outputs, later.inputs) || meet(earlier.outputs, later.outputs) ||
         meet(earlier.inputs, later.outputs) ||
         (later.scratch != kNone && later.scratch == earlier.scratch);
}

// Collectives that were not moved on purpose go to where their operands are there, in the order
// they have: a schedule for one thread puts off what frees no memory, as all-reduces of gradients.
void start_when_ready(const FlatProgram& program, std::vector<FlatLaunch>& launches,
                      std::vector<bool>& ahead) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Node& node = launches[i].graph->node(launches[i].node);
    if (!is_collective(node) || ahead[i]) continue;
    size_t place = i;
    while (place > 0 && !depends(program, launches[i], launches[place - 1])) --place;
    const auto at = [](auto& items, size_t index) {
      return items.begin() + static_cast<std::ptrdiff_t>(index);
    };
    std::rotate(at(launches, place), at(launches, i), at(launches, i + 1));
    std::rotate(at(ahead, place), at(ahead, i), at(ahead, i + 1));
  }
}

}  // namespace

void overlap(FlatProgram& program) {
  const auto& launches = program.launches;
  const auto is_collective_at = [&](size_t i) {
    return is_collective(launches[i].graph->node(launches[i].node));
  };
  bool any = false;
  for (size_t i = 0; i < launches.size(); ++i) any = any || is_collective_at(i);
  if (!any) return;

  const WeightGathers weights(program);
  const auto gathered = [&](size_t i) {
    return weights.is_gather(i) ? launches[i].outputs[0].bytes : int64_t{0};
  };
  const auto other = [&](size_t i) {
    return is_collective_at(i) && !weights.is_early(i) ? bytes_of(launches[i]) : int64_t{0};
  };
  const int64_t budget = layer_bytes(program, other);
  std::vector<FlatLaunch> ordered;
  std::vector<bool> ahead;
  for (const size_t i : weights.order(layer_bytes(program, gathered))) {
    ordered.push_back(launches[i]);
    ahead.push_back(weights.is_early(i));
  }
  start_when_ready(program, ordered, ahead);
  Splitter(program).split(std::move(ordered), ahead, budget);
}

}  // namespace tessera
