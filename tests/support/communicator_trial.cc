// SPDX-License-Identifier: Apache-2.0
#include "tests/support/communicator_trial.h"

#include <algorithm>
#include <exception>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/reference/array.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/runtime/comm/cpu_communicator.h"
#include "tests/support/catch.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

Node trial_node(const CommunicatorTrial& trial, int64_t device) {
  Node node{.op = &find_op(trial.op), .inputs = {ValueId(0)}, .attributes = trial.attributes};
  const std::vector<int64_t> group = trial.mesh.group(device, trial.mesh_axes);
  const auto size = static_cast<int64_t>(group.size());
  const int64_t index = trial.mesh.index_along(device, trial.mesh_axes);
  node.attributes.set(key::kMeshAxes, trial.mesh_axes);
  node.attributes.set(key::kGroup, group);
  node.attributes.set(key::kIndex, index);
  if (trial.op == "permute") {
    const auto at = [&](int64_t place) {
      return group[static_cast<size_t>((place % size + size) % size)];
    };
    node.attributes.set(key::kTo, at(index + trial.shift));
    node.attributes.set(key::kFrom, at(index - trial.shift));
  }
  node.path = "lm.ffn";
  node.site = SourceSite::current();
  return node;
}

// The position of an element in an array whose axis `axis` has another size and begins at `begin`.
int64_t position_in(const Type& type, std::vector<int64_t> index, size_t axis, int64_t size,
                    int64_t begin) {
  int64_t position = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    const int64_t extent = i == axis ? size : type.axes[i].size;
    position = position * extent + index[i] + (i == axis ? begin : 0);
  }
  return position;
}

std::vector<int64_t> index_of(const Type& type, int64_t element) {
  std::vector<int64_t> index(type.axes.size());
  for (size_t i = type.axes.size(); i-- > 0; element /= type.axes[i].size)
    index[i] = element % type.axes[i].size;
  return index;
}

}  // namespace

std::string CommunicatorTrial::text() const {
  return fmt::format("{} over {} of ({}), {} {}{}", op, fmt::join(mesh_axes, ","), mesh.text(),
                     in.text_sized(), attributes.text(), in_place ? ", in place" : "");
}

Type CommunicatorTrial::out() const {
  const Node node = trial_node(*this, 0);
  const std::vector<Type> types = {in};
  const std::vector<std::string> names = {"x"};
  return node.op->infer({op, mesh, types, node.attributes, names}).at(0);
}

Graph trial_graph(const CommunicatorTrial& trial, int64_t device) {
  Graph graph;
  graph.add_input("x", InputKind::kBatch, trial.in);
  graph.add_node(trial_node(trial, device), {trial.out()});
  return graph;
}

std::vector<std::unique_ptr<Communicator>> make_communicators(int64_t devices, int processes,
                                                              const CommunicatorOptions& options) {
  REQUIRE(devices % processes == 0);
  std::vector<std::string> hosts;
  for (int i = 0; i < processes; ++i) hosts.push_back(fmt::format("host{}", i));
  auto transports = make_loopback(processes, hosts);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int process = 0; process < processes; ++process) {
    CommunicatorOptions own = options;
    own.local_devices = devices / processes;
    if (processes > 1) own.transport = transports[static_cast<size_t>(process)];
    communicators.push_back(make_cpu_communicator(own));
  }
  return communicators;
}

std::vector<std::string> on_all_devices(
    const std::vector<std::unique_ptr<Communicator>>& communicators,
    const std::function<void(int64_t device, Communicator& communicator)>& work) {
  std::vector<std::string> errors(static_cast<size_t>(communicators[0]->num_devices()));
  std::vector<std::thread> threads;
  for (const auto& communicator : communicators) {
    for (int64_t i = 0; i < communicator->local_devices(); ++i) {
      const int64_t device = communicator->first_device() + i;
      threads.emplace_back([&, device, it = communicator.get()] {
        try {
          work(device, *it);
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(device)] = error.what();
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<Bytes> run_trial(const CommunicatorTrial& trial,
                             const std::vector<std::unique_ptr<Communicator>>& communicators,
                             const std::vector<Bytes>& operands) {
  std::vector<Bytes> results(operands.size());
  const auto bytes = static_cast<size_t>(trial.out().bytes());
  const auto errors =
      on_all_devices(communicators, [&](int64_t device, Communicator& communicator) {
        const Graph graph = trial_graph(trial, device);
        const Node& node = graph.nodes().front();
        const auto kernel = communicator.prepare(device, graph, node);
        CHECK(kernel->scratch_bytes() == cpu_collective_needs(graph, node).scratch_bytes);
        Bytes operand = operands[static_cast<size_t>(device)], result(bytes, std::byte{0xa5});
        Bytes scratch(static_cast<size_t>(kernel->scratch_bytes()));
        const std::byte* const in = operand.data();
        std::byte* const out = trial.in_place ? operand.data() : result.data();
        host_kernel(*kernel).run({{&in, 1}, {&out, 1}, scratch.data()});
        results[static_cast<size_t>(device)] = trial.in_place ? operand : result;
      });
  for (const std::string& error : errors) REQUIRE(error == "");
  return results;
}

std::vector<std::vector<double>> expected_results(
    const CommunicatorTrial& trial, const std::vector<std::vector<double>>& operands) {
  const Type in = trial.in, out = trial.out();
  const auto axis = [&](AttributeName<std::string> name) {
    return trial.attributes.has(name) ? static_cast<size_t>(in.find(trial.attributes.get(name)))
                                      : in.axes.size();
  };
  const bool is_max = trial.attributes.get_or(key::kReduction, "sum") == "max";
  std::vector<std::vector<double>> results;
  for (int64_t device = 0; device < trial.mesh.num_devices(); ++device) {
    const std::vector<int64_t> group = trial.mesh.group(device, trial.mesh_axes);
    const int64_t own = trial.mesh.index_along(device, trial.mesh_axes);
    const auto size = static_cast<int64_t>(group.size());
    const auto value = [&](int64_t place, int64_t element) {
      const auto of = static_cast<size_t>(group[static_cast<size_t>(place)]);
      return operands[of][static_cast<size_t>(element)];
    };
    std::vector<double>& result = results.emplace_back();
    for (int64_t i = 0; i < out.elements(); ++i) {
      std::vector<int64_t> index = index_of(out, i);
      if (trial.op == "permute") {
        result.push_back(value(((own - trial.shift) % size + size) % size, i));
      } else if (trial.op == "all_gather") {
        const size_t at = axis(key::kAxis);
        const int64_t each = in.axes[at].size, from = index[at] / each;
        index[at] %= each;
        result.push_back(value(from, position_in(in, index, at, each, 0)));
      } else if (trial.op == "all_to_all") {
        const size_t concat = axis(key::kConcatAxis), split = axis(key::kSplitAxis);
        const int64_t each = in.axes[concat].size, from = index[concat] / each;
        index[concat] %= each;
        result.push_back(value(
            from, position_in(in, index, split, in.axes[split].size, own * out.axes[split].size)));
      } else {
        const size_t at = axis(key::kAxis);
        const int64_t element = at == in.axes.size() ? i
                                                     : position_in(in, index, at, in.axes[at].size,
                                                                   own * out.axes[at].size);
        double total = value(0, element);
        for (int64_t place = 1; place < size; ++place)
          total = is_max ? std::max(total, value(place, element)) : total + value(place, element);
        result.push_back(total);
      }
    }
  }
  return results;
}

std::vector<std::vector<double>> whole_operands(const CommunicatorTrial& trial) {
  std::vector<std::vector<double>> operands;
  for (int64_t device = 0; device < trial.mesh.num_devices(); ++device) {
    std::vector<double>& values = operands.emplace_back();
    for (int64_t i = 0; i < trial.in.elements(); ++i)
      values.push_back(static_cast<double>((device * 37 + i * 11) % 29 - 14));
  }
  return operands;
}

std::vector<std::vector<double>> random_operands(const CommunicatorTrial& trial) {
  std::vector<std::vector<double>> operands = whole_operands(trial);
  uint64_t number = 0;
  for (std::vector<double>& values : operands)
    for (double& value : values)
      value = static_cast<double>(++number * 2654435761u % 100003) / 50000.0 - 1.0;
  return operands;
}

std::vector<Bytes> encoded_operands(DType dtype, const std::vector<std::vector<double>>& arrays) {
  std::vector<Bytes> all;
  for (const std::vector<double>& values : arrays) {
    Bytes& bytes = all.emplace_back(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
    encode_values(dtype, values, bytes.data());
  }
  return all;
}

std::vector<CommunicatorTrial> collective_trials(const Mesh& mesh,
                                                 const std::vector<std::string>& axes,
                                                 DType dtype) {
  const int64_t k = mesh.size_along(axes);
  const auto type = [&](std::vector<Axis> sizes) { return make_type(dtype, std::move(sizes)); };
  const Type wide = type({{"x", 3}, {"y", 2 * k}, {"z", 5}});
  std::vector<CommunicatorTrial> trials;
  for (const char* axis : {"x", "y", "z"})
    trials.push_back(
        {mesh, axes, "all_gather", type({{"x", 3}, {"y", 2}, {"z", 5}}), {{key::kAxis, axis}}});
  trials.push_back({mesh, axes, "reduce_scatter", wide, {{key::kAxis, "y"}}});
  trials.push_back({mesh, axes, "reduce_scatter", type({{"x", k}, {"y", 7}}), {{key::kAxis, "x"}}});
  for (const int64_t elements : {0, 1, 5, 1023}) {
    for (const char* reduction : {"sum", "max"}) {
      for (const bool in_place : {false, true})
        trials.push_back({mesh,
                          axes,
                          "all_reduce",
                          type({{"x", elements}}),
                          {{key::kReduction, reduction}},
                          1,
                          in_place});
    }
  }
  const auto exchange = [&](const char* split, const char* concat) {
    trials.push_back({mesh,
                      axes,
                      "all_to_all",
                      type({{"u", 2}, {"x", 2 * k}, {"v", 3}, {"y", 3 * k}, {"w", 2}}),
                      {{key::kSplitAxis, split}, {key::kConcatAxis, concat}}});
  };
  for (const auto& [split, concat] : std::map<const char*, const char*>{{"x", "y"}, {"y", "x"}})
    exchange(split, concat);
  exchange("x", "v");
  exchange("y", "u");
  for (const int64_t shift : {0, 1, -1}) trials.push_back({mesh, axes, "permute", wide, {}, shift});
  return trials;
}

}  // namespace tessera
