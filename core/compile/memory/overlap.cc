// SPDX-License-Identifier: Apache-2.0
// Overlap of communication with computation (flat_program.h). In: a flat program whose collectives
// run in place. Out: each one as a start and a wait, in a new order. Gathers of weights move ahead
// within a budget of bytes, as in FSDP, or to the latest time at which no kernel waits
// (gather_starts.cc); others start when their operands are ready. Cost: near linear in the
// launches; a collective is compared with all launches that it passes, a launch with all open
// collectives.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/compile/memory/flat_program.h"
#include "core/compile/memory/launch_facts.h"
#include "core/graph/op.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

constexpr int64_t kTimedLayers = 2;  // Layers of gathered bytes ahead, when times are known.

bool may_move(const FlatLaunch& launch, const NodeFacts& facts) {
  return facts.is_inexpensive && !facts.may_wait && !launch.inputs.empty() && !facts.is_shared;
}

bool covers(FlatValue whole, FlatValue part) {
  return part.offset >= whole.offset && part.offset + part.bytes <= whole.offset + whole.bytes;
}

// Records which launches have written which parts of buffers, in the order in which they are added.
class Writers {
 public:
  explicit Writers(size_t buffers) : ends_(buffers) {}

  void add(FlatValue root, size_t launch) {
    Ends& ends = ends_[root.buffer];
    const auto number = static_cast<int32_t>(writers_.size());
    (ends.last < 0 ? ends.first : writers_[static_cast<size_t>(ends.last)].next) = number;
    ends.last = number;
    writers_.push_back({root, launch, kNone});
  }

  // Returns the first launch that has written all of `part`.
  std::optional<size_t> of(FlatValue part) const {
    for (int32_t i = ends_[part.buffer].first; i >= 0;) {
      const Writer& writer = writers_[static_cast<size_t>(i)];
      if (covers(writer.root, part)) return writer.launch;
      i = writer.next;
    }
    return std::nullopt;
  }

 private:
  static constexpr int32_t kNone = -1;
  struct Writer {
    FlatValue root;
    size_t launch = 0;
    int32_t next = kNone;  // Next writer of this buffer.
  };
  struct Ends {
    int32_t first = kNone, last = kNone;
  };

  std::vector<Writer> writers_;
  IndexedVector<BufferId, Ends> ends_;
};

// Finds collectives that bring weights to their use, and the casts and slices before them. They
// depend only on persistent values, so they may run at any earlier time. Launches are numbered by
// their position in the program.
class AllGatherPrefetch {
 public:
  AllGatherPrefetch(const FlatProgram& program, const Footprints& footprints,
                    const LaunchFacts& facts)
      : program_(program),
        facts_(facts),
        early_(program.launches.size(), false),
        first_use_(program.launches.size(), kNever) {
    Writers early_writers(program.buffers.size());
    producers_begin_.reserve(program.launches.size() + 1);
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const FlatLaunch& launch = program.launches[LaunchId(i)];
      const size_t begin = producers_.size();
      producers_begin_.push_back(begin);
      bool early = may_move(launch, facts[i]);
      for (const FlatValue& root : footprints[LaunchId(i)].reads) {
        if (program.buffers[root.buffer].persistent) continue;
        const std::optional<size_t> writer = early_writers.of(root);
        if (writer) producers_.push_back(*writer);
        early = early && writer;
      }
      // A gather is complete at its first reader that is not a further collective of the chain.
      const bool continues_chain = early && facts[i].is_collective;
      if (!continues_chain)
        for (size_t k = begin; k < producers_.size(); ++k)
          if (facts[producers_[k]].is_collective)
            first_use_[producers_[k]] = std::min(first_use_[producers_[k]], i);
      if (!early) {
        producers_.resize(begin);
        continue;
      }
      early_[i] = true;
      for (const FlatValue& root : footprints[LaunchId(i)].writes) early_writers.add(root, i);
    }
    producers_begin_.push_back(producers_.size());
  }

  // Returns whether launch `i` depends only on persistent values, through collectives and cheap
  // ops.
  bool is_early(size_t i) const { return early_[i]; }
  // Returns whether launch `i` is the last collective of such a chain.
  bool is_gather(size_t i) const { return first_use_[i] != kNever; }

  // Returns the gathers in the order of their first uses.
  std::vector<size_t> gathers() const {
    std::vector<size_t> gathers;
    for (size_t i = 0; i < early_.size(); ++i)
      if (is_gather(i)) gathers.push_back(i);
    std::ranges::stable_sort(gathers,
                             [&](size_t a, size_t b) { return first_use_[a] < first_use_[b]; });
    return gathers;
  }

  // Returns the gathers with their seconds; a collective that several read counts for the first.
  std::vector<TimedGather> timed_gathers(const std::vector<double>& seconds) const {
    std::vector<bool> counted(early_.size(), false);
    const auto with_producers = [&](auto& self, size_t i) -> double {
      if (counted[i]) return 0.0;
      counted[i] = true;
      double sum = facts_[i].is_collective ? seconds[i] : 0.0;
      for (size_t k = producers_begin_[i]; k < producers_begin_[i + 1]; ++k)
        sum += self(self, producers_[k]);
      return sum;
    };
    std::vector<TimedGather> timed;
    for (const size_t gather : gathers())
      timed.push_back(
          {.first_use = first_use_[gather], .seconds = with_producers(with_producers, gather)});
    return timed;
  }

  // Returns an order of all launches in which gathers and their producers run as early as possible
  // with at most `budget` gathered bytes that no launch has used yet, but not before the positions
  // in `earliest`, one for each of gathers() or none. The others keep their order.
  std::vector<size_t> order(int64_t budget, const std::vector<size_t>& earliest) const {
    const std::vector<size_t> gathers = this->gathers();
    const std::vector<size_t> positions = this->positions(gathers, budget, earliest);

    std::vector<size_t> order;
    order.reserve(early_.size());
    std::vector<bool> placed(early_.size(), false);
    const auto put = [&](auto& self, size_t i) -> void {
      if (placed[i]) return;
      for (size_t k = producers_begin_[i]; k < producers_begin_[i + 1]; ++k)
        self(self, producers_[k]);
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

  // Returns the launch before which each gather is moved.
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
  const LaunchFacts& facts_;
  std::vector<bool> early_;
  // Producers of early launches. Those of launch i begin at producers_begin_[i].
  std::vector<size_t> producers_, producers_begin_;
  std::vector<size_t> first_use_;  // First reader of each gather.
};

int64_t bytes_of(const FlatLaunch& launch) {
  int64_t bytes = 0;
  for (const FlatValue& value : launch.inputs) bytes += value.bytes;
  for (const FlatValue& value : launch.outputs) bytes += value.bytes;
  return bytes;
}

// Inserts starts and waits for the collectives of a program whose launches run in another order.
class Splitter {
 public:
  Splitter(FlatProgram& program, const Footprints& footprints, const LaunchFacts& facts)
      : program_(program),
        footprints_(footprints),
        facts_(facts),
        open_results_(program.buffers.size()) {}

  // Splits collectives. The budget limits neither prefetched collectives nor receives.
  void split(const std::vector<LaunchId>& order, const AllGatherPrefetch& weights, int64_t budget) {
    for (const LaunchId i : order) {
      const NodeFacts& facts = facts_[i.index()];
      const bool follows = touches_deferred(i);
      const bool is_start = facts.is_collective;
      if (!is_start && facts.may_wait && (follows || needed(i) > 0)) {
        deferred_.push_back(i);
        continue;
      }
      if (follows) run_deferred();
      if (is_start) {
        start(i, weights.is_early(i.index()), budget);
      } else {
        wait_for(needed(i));
        result_.push_back(program_.launches[i]);
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
    FlatLaunch launch = program_.launches[i];
    // A received value is in memory until it is read, however early it is waited for.
    const bool unlimited = is_early || facts_[i.index()].is_receive;
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
    open.start = result_.push_back(launch);
    for (const FlatValue& result : open.results) ++open_results_[result.buffer];
    open_.push_back(open);
  }

  // Returns how many of the oldest open collectives must be complete before this launch.
  size_t needed(LaunchId launch) const {
    size_t count = 0;
    each_value(launch, [&](FlatValue root) {
      if (open_results_[root.buffer] == 0) return;
      for (size_t i = count; i < open_.size(); ++i) {
        const std::span<const FlatValue> results = open_[i].results;
        if (std::ranges::any_of(results, [&](FlatValue result) { return overlaps(result, root); }))
          count = i + 1;
      }
    });
    return count;
  }

  // Updates, and sums of gradients, are deferred until another launch has waited for their
  // gradients. Returns whether a launch depends on a deferred one, and so must be deferred or run
  // after it.
  bool touches_deferred(LaunchId launch) const {
    if (deferred_.empty()) return false;
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
      result_.push_back(program_.launches[deferred_.front()]);
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
      const size_t scratch = start.scratch != kNone ? 1 : 0;
      FlatLaunch wait{
          .graph = start.graph,
          .node = start.node,
          .flat_node = start.flat_node,
          .inputs = program_.values.add(start.inputs.size() + start.outputs.size() + scratch)};
      const auto outputs = std::ranges::copy(start.inputs, wait.inputs.begin()).out;
      std::ranges::copy(start.outputs, outputs);
      if (scratch > 0)
        wait.inputs.back() = {.buffer = start.scratch,
                              .bytes = program_.buffers[start.scratch].bytes};
      wait.kind = LaunchKind::kWait;
      wait.waits_for = oldest.start;
      in_flight_ -= oldest.bytes;
      for (const FlatValue& result : oldest.results) --open_results_[result.buffer];
      open_.pop_front();
      result_.push_back(wait);
      run_ready();
    }
  }

  FlatProgram& program_;
  const Footprints& footprints_;
  const LaunchFacts& facts_;
  IndexedVector<LaunchId, FlatLaunch> result_;
  std::deque<Open> open_;
  IndexedVector<BufferId, int32_t> open_results_;  // Number of results of open_ in each buffer.
  std::deque<LaunchId> deferred_;
  int64_t in_flight_ = 0;
};

// Returns the bytes of the chosen collectives of one layer in one phase: the maximum over path
// prefixes such as "layers[i]" of each graph, and over loop bodies without their layers.
template <typename Chosen>
int64_t layer_bytes(const FlatProgram& program, const Chosen& chosen) {
  std::map<std::pair<const Graph*, std::string>, int64_t> layers;
  IndexedVector<FlatNodeId, bool> seen(program.nodes.size());  // Counts one iteration of a loop.
  int64_t largest_alone = 0, largest_layer = 0;
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const FlatLaunch& launch = program.launches[LaunchId(i)];
    if (seen[launch.flat_node]) continue;
    const int64_t bytes = chosen(i);
    if (bytes == 0) continue;
    seen[launch.flat_node] = true;
    const Node& node = launch.graph->node(launch.node);
    largest_alone = std::max(largest_alone, bytes);
    const size_t end = node.path.rfind(']');
    const bool in_layer = end != std::string::npos;
    if (launch.graph == program.graph.get() && !in_layer) continue;
    const std::string layer = in_layer ? node.path.substr(0, end + 1) : "";
    int64_t& sum = layers[{launch.graph, layer + std::string(phase_name(node.phase))}];
    largest_layer = std::max(largest_layer, sum += bytes);
  }
  return layers.empty() ? largest_alone : largest_layer;
}

// Moves collectives that are not prefetched to where their operands are computed. The sequential
// schedule delays launches that free no memory, such as all-reduces of gradients. A receive has no
// operands: it stays where the schedule of the pipeline has it.
void start_when_ready(const LaunchFacts& facts, const Footprints& footprints,
                      const AllGatherPrefetch& weights, std::vector<LaunchId>& order) {
  for (auto it = order.begin(); it != order.end(); ++it) {
    const NodeFacts& own = facts[it->index()];
    if (!own.is_collective || own.is_receive || weights.is_early(it->index())) continue;
    const auto follows = [&](LaunchId earlier) {
      return depends(footprints[*it], footprints[earlier]) ||
             (own.is_shared && facts[earlier.index()].is_shared);
    };
    auto position = it;
    while (position != order.begin() && !follows(*std::prev(position))) --position;
    std::rotate(position, it, std::next(it));
  }
}

// Returns the most bytes that are sent between two computations: the values that one task of a
// pipeline sends.
int64_t most_sent_together(const FlatProgram& program, const LaunchFacts& facts,
                           const std::vector<LaunchId>& order) {
  int64_t most = 0, sum = 0;
  for (const LaunchId i : order) {
    const NodeFacts& node = facts[i.index()];
    if (!node.is_transfer) sum = 0;
    if (node.is_send) sum += bytes_of(program.launches[i]);
    most = std::max(most, sum);
  }
  return most;
}

// Returns the launch before which each gather must start, so that no kernel waits for it.
std::vector<size_t> starts_of_gathers(const LaunchFacts& facts, const AllGatherPrefetch& weights,
                                      const std::vector<double>& seconds) {
  std::vector<double> kernels = seconds;
  std::vector<TimedCollective> others;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (!facts[i].is_collective) continue;
    kernels[i] = 0.0;
    if (!weights.is_early(i)) others.push_back({.position = i, .seconds = seconds[i]});
  }
  return latest_starts(kernels, weights.timed_gathers(seconds), others);
}

}  // namespace

void overlap(FlatProgram& program, const LaunchSeconds& seconds) {
  const auto& launches = program.launches;
  const LaunchFacts facts(program, transfer_axes(*program.graph));
  const bool any = std::ranges::any_of(
      launches, [&](const FlatLaunch& launch) { return facts.of(launch).is_collective; });
  if (!any) return;

  const Footprints footprints(program);
  const AllGatherPrefetch weights(program, footprints, facts);
  const auto gathered = [&](size_t i) {
    return weights.is_gather(i) ? launches[LaunchId(i)].outputs[0].bytes : int64_t{0};
  };
  const auto other = [&](size_t i) {
    const bool counts = facts[i].is_collective && !facts[i].is_transfer && !weights.is_early(i);
    return counts ? bytes_of(launches[LaunchId(i)]) : int64_t{0};
  };
  std::vector<LaunchId> order;
  const int64_t layers = seconds ? kTimedLayers : 1;
  std::vector<size_t> earliest;
  if (seconds) earliest = starts_of_gathers(facts, weights, facts.seconds_of_launches(seconds));
  order.reserve(launches.size());
  for (const size_t i : weights.order(layers * layer_bytes(program, gathered), earliest))
    order.emplace_back(i);
  const int64_t budget = layer_bytes(program, other) + most_sent_together(program, facts, order);
  start_when_ready(facts, footprints, weights, order);
  Splitter(program, footprints, facts).split(order, weights, budget);
}

}  // namespace tessera
