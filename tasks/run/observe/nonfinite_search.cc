// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/observe/nonfinite_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <new>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/message.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/op.h"
#include "core/runtime/executor/inspected_device.h"
#include "tasks/run/observe/value_range.h"

namespace tessera {
namespace {

using Arrays = std::vector<ReferenceArray>;

Arrays decoded(const Graph& graph, const std::vector<ValueId>& values,
               const ArrayBytesList& bytes) {
  Arrays arrays;
  for (size_t i = 0; i < values.size(); ++i) {
    const Type& type = graph.type(values[i]);
    arrays.push_back({type.axes, decode_values(type, bytes[i].data())});
  }
  return arrays;
}

bool has_finite(const ReferenceArray& array) {
  return std::ranges::all_of(array.values, [](double value) { return std::isfinite(value); });
}

// The first op that a launch fuses whose result is not finite; null: none found.
const Node* first_of_fused(const Graph& body, const Arrays& inputs) {
  std::map<ValueId, ReferenceArray> known;
  for (size_t i = 0; i < inputs.size(); ++i) known[body.inputs()[i].value] = inputs[i];
  for (const Node& node : body.nodes()) {
    std::vector<const ReferenceArray*> operands;
    for (const ValueId input : node.inputs) operands.push_back(&known.at(input));
    Arrays results = evaluate_node(body, node, operands);
    for (size_t i = 0; i < results.size(); ++i) {
      // Rounded to the dtype: what is too large for it is infinite.
      const Type& type = body.type(node.outputs[i]);
      std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
      encode_values(type.dtype, results[i].values, bytes.data());
      if (!all_finite(type, bytes)) return &node;
      known[node.outputs[i]] = std::move(results[i]);
    }
  }
  return nullptr;
}

// The path of an op of a fused launch, with the layer's index that the launch has.
std::string path_of(const Node& inner, const ListedLaunch& launch) {
  std::string path = inner.path;
  const size_t at = path.rfind("[]"), own = launch.node->path.rfind("[]");
  if (at != path.npos && own != path.npos)
    path.replace(at, 2, launch.path.substr(own, launch.path.find(']', own) + 1 - own));
  return path;
}

// What a launch of a list has read and written.
std::string description(const ListedLaunch& launch, const ArrayBytesList& inputs,
                        const ArrayBytesList& outputs) {
  const Node& node = *launch.node;
  const Graph& graph = *launch.graph;
  const Arrays read = decoded(graph, node.inputs, inputs);
  const Arrays written = decoded(graph, node.outputs, outputs);
  std::string text = "\n  " + place_line(launch);
  if (node.bodies.size() == 1 && node.bodies[0]->inputs().size() == read.size())
    if (const Node* const inner = first_of_fused(*node.bodies[0], read))
      text += fmt::format("\n  of its ops: {} in {}, {}", inner->op->name, path_of(*inner, launch),
                          inner->site.text());
  const auto add = [&](const std::string& what, ValueId value, const ReferenceArray& array) {
    const Type& type = graph.type(value);
    text += fmt::format("\n  {}, {}: {}", what, type.text_sized(), range_text(type, array.values));
  };
  std::vector<std::string> earlier;
  for (size_t i = 0; i < read.size(); ++i) {
    add("input " + operand_name(launch, i), node.inputs[i], read[i]);
    if (!has_finite(read[i])) earlier.push_back(operand_name(launch, i));
  }
  for (size_t i = 0; i < written.size(); ++i)
    add(fmt::format("output {}", i), node.outputs[i], written[i]);
  return text + (earlier.empty() ? std::string("\n  its inputs are finite: it begins here")
                                 : fmt::format("\n  not finite before the step: input {}",
                                               fmt::join(earlier, ", ")));
}

// A launch that writes a value that is not finite. The one with the least `order` on all devices
// was first.
struct Found {
  int64_t order = std::numeric_limits<int64_t>::max();
  std::string text;
};

}  // namespace

class NonfiniteSearch::Watch {
 public:
  LaunchInspector inspector() {
    return {.before = [this](const InspectedLaunch& launch) { look(launch, &Watch::before); },
            .after = [this](const InspectedLaunch& launch) { look(launch, &Watch::after); }};
  }
  // Launches are ordered by their numbers if all devices have one program, else in time.
  void begin(const LaunchList& list, std::string device, bool by_number) {
    list_ = &list;
    device_ = std::move(device);
    by_number_ = by_number;
    found_ = {};
  }
  Found end() {
    list_ = nullptr;
    open_.clear();
    return found_;
  }

 private:
  // What a launch has read, and where it writes.
  struct Open {
    ArrayBytesList inputs;
    std::vector<DeviceAddress> outputs;
  };

  // Until the first is found. Without memory for copies it stops, and the step goes on.
  void look(const InspectedLaunch& launch,
            void (Watch::*how)(const InspectedLaunch&, const ListedLaunch&)) {
    if (list_ == nullptr) return;
    const ListedLaunch* const listed = list_->find(launch.kind, launch.index);
    if (listed == nullptr) return;
    try {
      (this->*how)(launch, *listed);
    } catch (const std::bad_alloc&) {
      list_ = nullptr;
    }
  }

  void before(const InspectedLaunch& launch, const ListedLaunch& listed) {
    open_[listed.number] = {
        read_arrays(*listed.graph, listed.node->inputs, launch.inputs, launch.stream),
        {launch.outputs.begin(), launch.outputs.end()}};
  }

  void after(const InspectedLaunch& launch, const ListedLaunch& listed) {
    const auto closed = open_.extract(listed.number);
    const std::vector<ValueId>& values = listed.node->outputs;
    const ArrayBytesList written =
        read_arrays(*listed.graph, values, closed.mapped().outputs, launch.stream);
    bool is_finite = true;
    for (size_t i = 0; i < values.size(); ++i)
      is_finite = is_finite && all_finite(listed.graph->type(values[i]), written[i]);
    if (is_finite) return;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    found_ = {by_number_ ? listed.number : std::chrono::nanoseconds(now).count(),
              launch_line(listed, list_->launches().size()) + device_ +
                  description(listed, closed.mapped().inputs, written)};
    list_ = nullptr;
  }

  const LaunchList* list_ = nullptr;  // Null: it does not look.
  std::string device_;                // " on device 3", or "".
  bool by_number_ = true;
  std::map<int64_t, Open> open_;  // By number; several if collectives run beside launches.
  Found found_;
};

NonfiniteSearch::NonfiniteSearch(const std::vector<Device*>& devices) {
  for (Device* device : devices) {
    owned_.push_back(make_inspected_device(*device, watches_.emplace_back().inspector()));
    in_order_.push_back(owned_.back().get());
  }
}

NonfiniteSearch::~NonfiniteSearch() = default;

std::string NonfiniteSearch::find(Executor& executor, const Mesh& mesh, int program,
                                  ProcessGroup& processes, const std::function<void()>& step) {
  std::map<int64_t, LaunchList> lists;  // By stage.
  for (const StagePlan& stage : executor.stage_plans(program))
    lists.try_emplace(stage.stage, *stage.plan);
  int64_t device = executor.first_device();
  for (Watch& watch : watches_) {
    const std::string name = mesh.num_devices() > 1 ? fmt::format(" on device {}", device) : "";
    watch.begin(lists.at(mesh.stage_of(device++)), name, mesh.stages() == 1);
  }
  // Launches of observed runs are inspected.
  executor.observe([](const Graph&, const Node&, const LaunchTimes&) {});
  step();
  executor.observe({});
  const auto earlier = [](Found a, Found b) { return b.order < a.order ? b : a; };
  Found first;
  for (Watch& watch : watches_) first = earlier(first, watch.end());
  for (const std::string& message :
       processes.all_gather(pack(first.order, first.text), "the first value that is not finite")) {
    Found there;
    unpack(message, there.order, there.text);
    first = earlier(first, there);
  }
  return first.text.empty() ? "" : "the first value that is not finite: " + first.text;
}

}  // namespace tessera
