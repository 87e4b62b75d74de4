// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/passes/memory/step_plan.h"

namespace tessera {
namespace {

const Node& node_of(const FlatLaunch& launch) { return launch.graph->node(launch.node); }

using Names = std::vector<std::string>;

// Whether devices with other programs take part (core/ops/send.h): such launches keep their order.
bool is_shared(const FlatLaunch& launch, const Names& transfers) {
  return communicates_along(transfers, node_of(launch));
}

bool may_move(const FlatLaunch& launch, const Names& transfers) {
  const Node& node = node_of(launch);
  const OpClass kind = node.op->op_class;
  const bool cheap = kind == OpClass::kElementwise || kind == OpClass::kDataMovement ||
                     kind == OpClass::kView || kind == OpClass::kCollective;
  return cheap && node.phase != Phase::kUpdate && !launch.inputs.empty() &&
         !is_shared(launch, transfers);
}

bool covers(FlatValue whole, FlatValue part) {
  return part.offset >= whole.offset && part.offset + part.bytes <= whole.offset + whole.bytes;
}

struct Writer {
  FlatValue root;
  size_t launch = 0;
};

// Collectives that bring weights to where they are used, and the casts and slices before them. They
// depend only on persistent values, so they may run at any earlier time. Launches are numbered by
// their position in the program.
class AllGatherPrefetch {
 public:
  AllGatherPrefetch(const FlatProgram& program, const Names& transfers)
      : program_(program),
        early_(program.launches.size(), false),
        producers_(program.launches.size()),
        first_use_(program.launches.size(), kNever) {
    std::unordered_map<BufferId, std::vector<Writer>> early_writers;
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const FlatLaunch& launch = program.launches[LaunchId(i)];
      bool early = may_move(launch, transfers);
      std::vector<size_t> producers;
      for (const FlatValue& value : launch.inputs) {
        const FlatValue root = program.root(value);
        if (program.buffers[root.buffer].persistent) continue;
        const auto writers = early_writers.find(root.buffer);
        bool found = false;
        if (writers != early_writers.end()) {
          for (const Writer& writer : writers->second) {
            if (!covers(writer.root, root)) continue;
            producers.push_back(writer.launch);
            found = true;
            break;
          }
        }
        early = early && found;
      }
      // A gather is complete at its first reader that is not a further collective of the chain.
      const bool continues_chain = early && is_collective(node_of(launch));
      if (!continues_chain) {
        for (const size_t producer : producers)
          if (is_collective(node_of(program.launches[LaunchId(producer)])))
            first_use_[producer] = std::min(first_use_[producer], i);
      }
      if (!early) continue;
      early_[i] = true;
      producers_[i] = std::move(producers);
      for (const FlatValue& value : launch.outputs) {
        const FlatValue root = program.root(value);
        early_writers[root.buffer].push_back({root, i});
      }
    }
  }

  // Whether launch `i` depends only on persistent values, through collectives and inexpensive ops.
  bool is_early(size_t i) const { return early_[i]; }
  // Whether launch `i` is the last collective of such a chain.
  bool is_gather(size_t i) const { return first_use_[i] != kNever; }

  // An order of all launches in which gathers and what they depend on run as early as possible with
  // at most `budget` gathered bytes that no launch has used yet. The others keep their order.
  std::vector<size_t> order(int64_t budget) const {
    std::vector<size_t> gathers;
    for (size_t i = 0; i < early_.size(); ++i)
      if (is_gather(i)) gathers.push_back(i);
    std::stable_sort(gathers.begin(), gathers.end(),
                     [&](size_t a, size_t b) { return first_use_[a] < first_use_[b]; });
    const std::vector<size_t> positions = this->positions(gathers, budget);

    std::vector<size_t> order;
    std::vector<bool> placed(early_.size(), false);
    const auto put = [&](auto& self, size_t i) -> void {
      if (placed[i]) return;
      for (const size_t producer : producers_[i]) self(self, producer);
      placed[i] = true;
      order.push_back(i);
    };
    size_t next = 0;
    for (size_t i = 0; i < early_.size(); ++i) {
      for (; next < gathers.size() && positions[next] <= i; ++next) put(put, gathers[next]);
      put(put, i);
    }
    return order;
  }

 private:
  static constexpr size_t kNever = static_cast<size_t>(-1);

  // The launch before which each gather is moved.
  std::vector<size_t> positions(const std::vector<size_t>& gathers, int64_t budget) const {
    const auto bytes = [&](size_t k) {
      return program_.launches[LaunchId(gathers[k])].outputs[0].bytes;
    };
    std::vector<size_t> positions;
    size_t begin = 0;  // Gathers [begin, k] are within the budget.
    int64_t sum = 0;
    for (size_t k = 0; k < gathers.size(); ++k) {
      sum += bytes(k);
      while (begin < k && sum > budget) sum -= bytes(begin++);
      size_t position = gathers[k];
      if (sum <= budget)
        position = std::min(position, begin == 0 ? 0 : first_use_[gathers[begin - 1]]);
      if (!positions.empty()) position = std::min(std::max(position, positions.back()), gathers[k]);
      positions.push_back(position);
    }
    return positions;
  }

  const FlatProgram& program_;
  std::vector<bool> early_;
  std::vector<std::vector<size_t>> producers_;  // Of early launches: the launches they depend on.
  std::vector<size_t> first_use_;               // Of gathers: their first reader.
};

bool overlaps(FlatValue a, FlatValue b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

int64_t bytes_of(const FlatLaunch& launch) {
  int64_t bytes = 0;
  for (const FlatValue& value : launch.inputs) bytes += value.bytes;
  for (const FlatValue& value : launch.outputs) bytes += value.bytes;
  return bytes;
}

// Inserts starts and waits for the collectives of an ordered list of launches.
class Splitter {
 public:
  explicit Splitter(FlatProgram& program) : program_(program) {}

  // `ahead` marks prefetched collectives, which the budget does not limit, as it does not limit
  // receives.
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
    LaunchId start;
    int64_t bytes = 0;  // Counted against the budget.
    std::vector<FlatValue> results;
  };

  void start(FlatLaunch launch, bool ahead, int64_t budget) {
    // What is received is in memory until it is read, however early it is waited for.
    const bool unlimited = ahead || node_of(launch).op == &kReceiveOp;
    Open open{.start = {}, .bytes = unlimited ? 0 : bytes_of(launch), .results = {}};
    size_t early = 0;
    for (int64_t in_flight = in_flight_; open.bytes > 0 && in_flight + open.bytes > budget;) {
      if (early == open_.size()) break;
      in_flight -= open_[early++].bytes;
    }
    wait_for(early);
    for (const FlatValue& value : launch.outputs) open.results.push_back(program_.root(value));
    in_flight_ += open.bytes;
    launch.kind = LaunchKind::kStart;
    open.start = result_.push_back(std::move(launch));
    open_.push_back(std::move(open));
  }

  // How many of the oldest open collectives must be complete before this launch.
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

  // Updates are deferred until something else has waited for their gradients; so is what depends on
  // them.
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

  // Waits for the `count` oldest collectives. They complete in order.
  void wait_for(size_t count) {
    for (; count > 0; --count) {
      const Open& oldest = open_.front();
      const FlatLaunch& start = result_[oldest.start];
      FlatLaunch wait{.graph = start.graph, .node = start.node, .inputs = start.inputs};
      wait.inputs.insert(wait.inputs.end(), start.outputs.begin(), start.outputs.end());
      if (start.scratch != kNone)
        wait.inputs.push_back({start.scratch, 0, program_.buffers[start.scratch].bytes});
      wait.kind = LaunchKind::kWait;
      wait.waits_for = oldest.start;
      in_flight_ -= oldest.bytes;
      open_.pop_front();
      result_.push_back(std::move(wait));
      run_ready();
    }
  }

  FlatProgram& program_;
  IndexedVector<LaunchId, FlatLaunch> result_;
  std::deque<Open> open_;
  std::deque<FlatLaunch> deferred_;
  int64_t in_flight_ = 0;
};

// The bytes of the chosen collectives of one layer in one phase: the maximum over loop bodies and,
// for unrolled layers, over path prefixes such as "layers[i]".
template <typename Chosen>
int64_t layer_bytes(const FlatProgram& program, const Chosen& chosen) {
  std::map<std::pair<const Graph*, std::string>, int64_t> layers;
  std::set<std::pair<const Graph*, NodeId>> seen;  // Counts one iteration of a loop.
  int64_t largest_alone = 0, largest_layer = 0;
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const FlatLaunch& launch = program.launches[LaunchId(i)];
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

// Whether `later` depends on `earlier`.
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

// Moves collectives that are not prefetched to where their operands are computed. The sequential
// schedule delays launches that free no memory, such as all-reduces of gradients. A receive has no
// operands: it stays where the schedule of the pipeline has it.
void start_when_ready(const FlatProgram& program, const Names& transfers,
                      std::vector<FlatLaunch>& launches, std::vector<bool>& ahead) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Node& node = node_of(launches[i]);
    if (!is_collective(node) || node.op == &kReceiveOp || ahead[i]) continue;
    const bool shared = is_shared(launches[i], transfers);
    const auto follows = [&](const FlatLaunch& earlier) {
      return depends(program, launches[i], earlier) || (shared && is_shared(earlier, transfers));
    };
    size_t position = i;
    while (position > 0 && !follows(launches[position - 1])) --position;
    const auto at = [](auto& items, size_t index) {
      return items.begin() + static_cast<std::ptrdiff_t>(index);
    };
    std::rotate(at(launches, position), at(launches, i), at(launches, i + 1));
    std::rotate(at(ahead, position), at(ahead, i), at(ahead, i + 1));
  }
}

// The most bytes that are sent between two computations: the values that one task of a pipeline
// sends.
int64_t most_sent_together(const std::vector<FlatLaunch>& launches) {
  int64_t most = 0, sum = 0;
  for (const FlatLaunch& launch : launches) {
    const Node& node = node_of(launch);
    if (!is_transfer(node)) sum = 0;
    if (node.op == &kSendOp) sum += bytes_of(launch);
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

void overlap(FlatProgram& program) {
  const auto& launches = program.launches;
  const auto is_collective_at = [&](size_t i) {
    return is_collective(node_of(launches[LaunchId(i)]));
  };
  bool any = false;
  for (size_t i = 0; i < launches.size(); ++i) any = any || is_collective_at(i);
  if (!any) return;

  const Names transfers = transfer_axes(*program.graph);
  const AllGatherPrefetch weights(program, transfers);
  const auto gathered = [&](size_t i) {
    return weights.is_gather(i) ? launches[LaunchId(i)].outputs[0].bytes : int64_t{0};
  };
  const auto other = [&](size_t i) {
    const bool counts =
        is_collective_at(i) && !is_transfer(node_of(launches[LaunchId(i)])) && !weights.is_early(i);
    return counts ? bytes_of(launches[LaunchId(i)]) : int64_t{0};
  };
  std::vector<FlatLaunch> ordered;
  std::vector<bool> ahead;
  for (const size_t i : weights.order(layer_bytes(program, gathered))) {
    ordered.push_back(launches[LaunchId(i)]);
    ahead.push_back(weights.is_early(i));
  }
  const int64_t budget = layer_bytes(program, other) + most_sent_together(ordered);
  start_when_ready(program, transfers, ordered, ahead);
  Splitter(program).split(std::move(ordered), ahead, budget);
}

}  // namespace tessera
