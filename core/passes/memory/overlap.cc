// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/passes/memory/gather_starts.h"
#include "core/passes/memory/step_plan.h"

namespace tessera {
namespace {

const Node& node_of(const FlatLaunch& launch) { return launch.graph->node(launch.node); }

using Names = std::vector<std::string>;

constexpr int64_t kTimedLayers = 2;  // Whose gathered bytes may be ahead when times are known.

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

bool overlaps(FlatValue a, FlatValue b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// The memory of a launch, by root buffers.
struct Footprint {
  std::span<const FlatValue> reads, writes;
  BufferId scratch;
  uint64_t buffers = 0;  // A bit for each buffer, modulo 64: most pairs of launches share none.
};

// Finds root buffers once, since all pairs of launches are compared, and keeps them in one array.
class Footprints {
 public:
  explicit Footprints(const FlatProgram& program) {
    size_t values = 0;
    for (const FlatLaunch& launch : program.launches)
      values += launch.inputs.size() + launch.outputs.size();
    roots_.reserve(values);  // The spans stay valid.
    for (const FlatLaunch& launch : program.launches) {
      Footprint& it = footprints_[footprints_.push_back({})];
      it.reads = add(program, launch.inputs, it.buffers);
      it.writes = add(program, launch.outputs, it.buffers);
      it.scratch = launch.scratch;
      if (it.scratch != kNone) it.buffers |= bit(it.scratch);
    }
  }

  const Footprint& operator[](LaunchId launch) const { return footprints_[launch]; }

 private:
  static uint64_t bit(BufferId buffer) { return uint64_t{1} << (buffer.index() % 64); }

  std::span<const FlatValue> add(const FlatProgram& program, const std::vector<FlatValue>& values,
                                 uint64_t& buffers) {
    const size_t begin = roots_.size();
    for (const FlatValue& value : values) {
      roots_.push_back(program.root(value));
      buffers |= bit(roots_.back().buffer);
    }
    return std::span(roots_).subspan(begin);
  }

  std::vector<FlatValue> roots_;
  IndexedVector<LaunchId, Footprint> footprints_;
};

struct Writer {
  FlatValue root;
  size_t launch = 0;
};

// Collectives that bring weights to where they are used, and the casts and slices before them. They
// depend only on persistent values, so they may run at any earlier time. Launches are numbered by
// their position in the program.
class AllGatherPrefetch {
 public:
  AllGatherPrefetch(const FlatProgram& program, const Footprints& footprints,
                    const Names& transfers)
      : program_(program),
        early_(program.launches.size(), false),
        producers_(program.launches.size()),
        first_use_(program.launches.size(), kNever) {
    std::unordered_map<BufferId, std::vector<Writer>> early_writers;
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const FlatLaunch& launch = program.launches[LaunchId(i)];
      bool early = may_move(launch, transfers);
      std::vector<size_t> producers;
      for (const FlatValue& root : footprints[LaunchId(i)].reads) {
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
      for (const FlatValue& root : footprints[LaunchId(i)].writes)
        early_writers[root.buffer].push_back({root, i});
    }
  }

  // Whether launch `i` depends only on persistent values, through collectives and inexpensive ops.
  bool is_early(size_t i) const { return early_[i]; }
  // Whether launch `i` is the last collective of such a chain.
  bool is_gather(size_t i) const { return first_use_[i] != kNever; }

  // In the order of their first uses.
  std::vector<size_t> gathers() const {
    std::vector<size_t> gathers;
    for (size_t i = 0; i < early_.size(); ++i)
      if (is_gather(i)) gathers.push_back(i);
    std::stable_sort(gathers.begin(), gathers.end(),
                     [&](size_t a, size_t b) { return first_use_[a] < first_use_[b]; });
    return gathers;
  }

  // The same with what their collectives take; one that several gathers read is of the first.
  std::vector<TimedGather> timed_gathers(const std::vector<double>& seconds) const {
    std::vector<bool> counted(early_.size(), false);
    const auto with_producers = [&](auto& self, size_t i) -> double {
      if (counted[i]) return 0.0;
      counted[i] = true;
      double sum = is_collective(node_of(program_.launches[LaunchId(i)])) ? seconds[i] : 0.0;
      for (const size_t producer : producers_[i]) sum += self(self, producer);
      return sum;
    };
    std::vector<TimedGather> timed;
    for (const size_t gather : gathers())
      timed.push_back(
          {.first_use = first_use_[gather], .seconds = with_producers(with_producers, gather)});
    return timed;
  }

  // An order of all launches in which gathers and what they depend on run as early as possible with
  // at most `budget` gathered bytes that no launch has used yet, but not before the positions in
  // `earliest`, of each of gathers() or none. The others keep their order.
  std::vector<size_t> order(int64_t budget, const std::vector<size_t>& earliest) const {
    const std::vector<size_t> gathers = this->gathers();
    const std::vector<size_t> positions = this->positions(gathers, budget, earliest);

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
  std::vector<size_t> positions(const std::vector<size_t>& gathers, int64_t budget,
                                const std::vector<size_t>& earliest) const {
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
      if (!earliest.empty()) position = std::min(std::max(position, earliest[k]), gathers[k]);
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

// Whether `later` depends on `earlier`.
bool depends(const Footprint& later, const Footprint& earlier) {
  if ((later.buffers & earlier.buffers) == 0) return false;
  const auto meet = [](std::span<const FlatValue> ones, std::span<const FlatValue> others) {
    return std::any_of(ones.begin(), ones.end(), [&](FlatValue one) {
      return std::any_of(others.begin(), others.end(),
                         [&](FlatValue other) { return overlaps(one, other); });
    });
  };
  return meet(earlier.writes, later.reads) || meet(earlier.writes, later.writes) ||
         meet(earlier.reads, later.writes) ||
         (later.scratch != kNone && later.scratch == earlier.scratch);
}

int64_t bytes_of(const FlatLaunch& launch) {
  int64_t bytes = 0;
  for (const FlatValue& value : launch.inputs) bytes += value.bytes;
  for (const FlatValue& value : launch.outputs) bytes += value.bytes;
  return bytes;
}

// Inserts starts and waits for the collectives of a program whose launches run in another order.
class Splitter {
 public:
  Splitter(FlatProgram& program, const Footprints& footprints)
      : program_(program), footprints_(footprints) {}

  // The budget limits neither prefetched collectives nor receives.
  void split(const std::vector<LaunchId>& order, const AllGatherPrefetch& weights, int64_t budget) {
    for (const LaunchId i : order) {
      FlatLaunch& launch = program_.launches[i];
      const Node& node = node_of(launch);
      const bool follows = touches_deferred(i);
      const bool is_start = is_collective(node);
      if (!is_start && node.phase == Phase::kUpdate && (follows || needed(i) > 0)) {
        deferred_.push_back(i);
        continue;
      }
      if (follows) run_deferred();
      if (is_start) {
        start(i, weights.is_early(i.index()), budget);
      } else {
        wait_for(needed(i));
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
    std::span<const FlatValue> results;
  };

  void start(LaunchId i, bool is_early, int64_t budget) {
    FlatLaunch launch = std::move(program_.launches[i]);
    // What is received is in memory until it is read, however early it is waited for.
    const bool unlimited = is_early || node_of(launch).op == &kReceiveOp;
    Open open{
        .start = {}, .bytes = unlimited ? 0 : bytes_of(launch), .results = footprints_[i].writes};
    size_t early = 0;
    for (int64_t in_flight = in_flight_; open.bytes > 0 && in_flight + open.bytes > budget;) {
      if (early == open_.size()) break;
      in_flight -= open_[early++].bytes;
    }
    wait_for(early);
    in_flight_ += open.bytes;
    launch.kind = LaunchKind::kStart;
    open.start = result_.push_back(std::move(launch));
    open_.push_back(std::move(open));
  }

  // How many of the oldest open collectives must be complete before this launch.
  size_t needed(LaunchId launch) const {
    size_t count = 0;
    each_value(launch, [&](FlatValue root) {
      for (size_t i = count; i < open_.size(); ++i) {
        const std::span<const FlatValue> results = open_[i].results;
        if (std::any_of(results.begin(), results.end(),
                        [&](FlatValue result) { return overlaps(result, root); }))
          count = i + 1;
      }
    });
    return count;
  }

  // Updates are deferred until something else has waited for their gradients; so is what depends on
  // them.
  bool touches_deferred(LaunchId launch) const {
    bool touches = false;
    each_value(launch, [&](FlatValue root) {
      for (const LaunchId deferred : deferred_)
        for (const FlatValue& result : footprints_[deferred].writes)
          touches = touches || overlaps(result, root);
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
      result_.push_back(std::move(program_.launches[deferred_.front()]));
      deferred_.pop_front();
    }
  }

  template <typename Visit>
  void each_value(LaunchId launch, const Visit& visit) const {
    for (const FlatValue& root : footprints_[launch].reads) visit(root);
    for (const FlatValue& root : footprints_[launch].writes) visit(root);
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
  const Footprints& footprints_;
  IndexedVector<LaunchId, FlatLaunch> result_;
  std::deque<Open> open_;
  std::deque<LaunchId> deferred_;
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

// Moves collectives that are not prefetched to where their operands are computed. The sequential
// schedule delays launches that free no memory, such as all-reduces of gradients. A receive has no
// operands: it stays where the schedule of the pipeline has it.
void start_when_ready(const FlatProgram& program, const Footprints& footprints,
                      const AllGatherPrefetch& weights, const Names& transfers,
                      std::vector<LaunchId>& order) {
  for (auto it = order.begin(); it != order.end(); ++it) {
    const FlatLaunch& launch = program.launches[*it];
    const Node& node = node_of(launch);
    if (!is_collective(node) || node.op == &kReceiveOp || weights.is_early(it->index())) continue;
    const bool shared = is_shared(launch, transfers);
    const auto follows = [&](LaunchId earlier) {
      return depends(footprints[*it], footprints[earlier]) ||
             (shared && is_shared(program.launches[earlier], transfers));
    };
    auto position = it;
    while (position != order.begin() && !follows(*std::prev(position))) --position;
    std::rotate(position, it, std::next(it));
  }
}

// The most bytes that are sent between two computations: the values that one task of a pipeline
// sends.
int64_t most_sent_together(const FlatProgram& program, const std::vector<LaunchId>& order) {
  int64_t most = 0, sum = 0;
  for (const LaunchId i : order) {
    const FlatLaunch& launch = program.launches[i];
    const Node& node = node_of(launch);
    if (!is_transfer(node)) sum = 0;
    if (node.op == &kSendOp) sum += bytes_of(launch);
    most = std::max(most, sum);
  }
  return most;
}

// Of each launch, from those of its node.
std::vector<double> seconds_of_launches(const FlatProgram& program,
                                        const LaunchSeconds& seconds_of) {
  constexpr double kUnknown = -1.0;
  std::map<const Graph*, IndexedVector<NodeId, double>> known;
  std::vector<double> seconds;
  for (const FlatLaunch& launch : program.launches) {
    const auto [nodes, added] =
        known.try_emplace(launch.graph, launch.graph->nodes().size(), kUnknown);
    double& of_node = nodes->second[launch.node];
    if (of_node == kUnknown) of_node = seconds_of(*launch.graph, node_of(launch));
    seconds.push_back(of_node);
  }
  return seconds;
}

// Before which launch each gather must start, for no kernel to wait for it.
std::vector<size_t> starts_of_gathers(const FlatProgram& program, const AllGatherPrefetch& weights,
                                      const LaunchSeconds& seconds_of) {
  const std::vector<double> seconds = seconds_of_launches(program, seconds_of);
  std::vector<double> kernels = seconds;
  std::vector<LinkUse> others;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (!is_collective(node_of(program.launches[LaunchId(i)]))) continue;
    kernels[i] = 0.0;
    if (!weights.is_early(i)) others.push_back({.position = i, .seconds = seconds[i]});
  }
  return latest_starts(kernels, weights.timed_gathers(seconds), others);
}

}  // namespace

void overlap(FlatProgram& program, const LaunchSeconds& seconds) {
  const auto& launches = program.launches;
  const auto is_collective_at = [&](size_t i) {
    return is_collective(node_of(launches[LaunchId(i)]));
  };
  bool any = false;
  for (size_t i = 0; i < launches.size(); ++i) any = any || is_collective_at(i);
  if (!any) return;

  const Names transfers = transfer_axes(*program.graph);
  const Footprints footprints(program);
  const AllGatherPrefetch weights(program, footprints, transfers);
  const auto gathered = [&](size_t i) {
    return weights.is_gather(i) ? launches[LaunchId(i)].outputs[0].bytes : int64_t{0};
  };
  const auto other = [&](size_t i) {
    const bool counts =
        is_collective_at(i) && !is_transfer(node_of(launches[LaunchId(i)])) && !weights.is_early(i);
    return counts ? bytes_of(launches[LaunchId(i)]) : int64_t{0};
  };
  std::vector<LaunchId> order;
  const int64_t layers = seconds ? kTimedLayers : 1;
  const std::vector<size_t> earliest =
      seconds ? starts_of_gathers(program, weights, seconds) : std::vector<size_t>();
  for (const size_t i : weights.order(layers * layer_bytes(program, gathered), earliest))
    order.emplace_back(i);
  const int64_t budget = layer_bytes(program, other) + most_sent_together(program, order);
  start_when_ready(program, footprints, weights, transfers, order);
  Splitter(program, footprints).split(order, weights, budget);
}

}  // namespace tessera
