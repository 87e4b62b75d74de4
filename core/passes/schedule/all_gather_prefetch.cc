// SPDX-License-Identifier: Apache-2.0
#include "core/passes/schedule/all_gather_prefetch.h"

#include <algorithm>
#include <unordered_map>

#include "core/graph/op.h"
#include "core/ops/collective.h"

namespace tessera {
namespace {

const Node& node_of(const FlatLaunch& launch) { return launch.graph->node(launch.node); }

bool may_move(const FlatLaunch& launch) {
  const Node& node = node_of(launch);
  const OpClass kind = node.op->op_class;
  const bool cheap = kind == OpClass::kElementwise || kind == OpClass::kDataMovement ||
                     kind == OpClass::kView || kind == OpClass::kCollective;
  return cheap && node.phase != Phase::kUpdate && !launch.inputs.empty();
}

bool covers(FlatValue whole, FlatValue part) {
  return part.offset >= whole.offset && part.offset + part.bytes <= whole.offset + whole.bytes;
}

struct Writer {
  FlatValue root;
  size_t launch = 0;
};

}  // namespace

WeightGathers::WeightGathers(const FlatProgram& program)
    : program_(program),
      early_(program.launches.size(), false),
      made_by_(program.launches.size()),
      first_use_(program.launches.size(), kNever) {
  std::unordered_map<BufferId, std::vector<Writer>> early_writers;
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const FlatLaunch& launch = program.launches[i];
    bool early = may_move(launch);
    std::vector<size_t> made_by;
    for (const FlatValue& value : launch.inputs) {
      const FlatValue root = program.root(value);
      if (program.buffers[static_cast<size_t>(root.buffer)].persistent) continue;
      const auto writers = early_writers.find(root.buffer);
      bool found = false;
      if (writers != early_writers.end()) {
        for (const Writer& writer : writers->second) {
          if (!covers(writer.root, root)) continue;
          made_by.push_back(writer.launch);
          found = true;
          break;
        }
      }
      early = early && found;
    }
    // Who reads a gather ends its journey, unless it is the next collective on the way.
    const bool on_the_way = early && is_collective(node_of(launch));
    if (!on_the_way) {
      for (const size_t maker : made_by)
        if (is_collective(node_of(program.launches[maker])))
          first_use_[maker] = std::min(first_use_[maker], i);
    }
    if (!early) continue;
    early_[i] = true;
    made_by_[i] = std::move(made_by);
    for (const FlatValue& value : launch.outputs) {
      const FlatValue root = program.root(value);
      early_writers[root.buffer].push_back({root, i});
    }
  }
}

std::vector<size_t> WeightGathers::places(const std::vector<size_t>& gathers,
                                          int64_t budget) const {
  const auto bytes = [&](size_t k) { return program_.launches[gathers[k]].outputs[0].bytes; };
  std::vector<size_t> places;
  size_t begin = 0;  // Gathers [begin, k] fit into the budget.
  int64_t sum = 0;
  for (size_t k = 0; k < gathers.size(); ++k) {
    sum += bytes(k);
    while (begin < k && sum > budget) sum -= bytes(begin++);
    size_t place = gathers[k];
    if (sum <= budget) place = std::min(place, begin == 0 ? 0 : first_use_[gathers[begin - 1]]);
    if (!places.empty()) place = std::min(std::max(place, places.back()), gathers[k]);
    places.push_back(place);
  }
  return places;
}

std::vector<size_t> WeightGathers::order(int64_t budget) const {
  std::vector<size_t> gathers;
  for (size_t i = 0; i < early_.size(); ++i)
    if (is_gather(i)) gathers.push_back(i);
  std::stable_sort(gathers.begin(), gathers.end(),
                   [&](size_t a, size_t b) { return first_use_[a] < first_use_[b]; });
  const std::vector<size_t> places = this->places(gathers, budget);

  std::vector<size_t> order;
  std::vector<bool> placed(early_.size(), false);
  const auto put = [&](auto& self, size_t i) -> void {
    if (placed[i]) return;
    for (const size_t maker : made_by_[i]) self(self, maker);
    placed[i] = true;
    order.push_back(i);
  };
  size_t next = 0;
  for (size_t i = 0; i < early_.size(); ++i) {
    for (; next < gathers.size() && places[next] <= i; ++next) put(put, gathers[next]);
    put(put, i);
  }
  return order;
}

}  // namespace tessera
