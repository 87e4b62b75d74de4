// SPDX-License-Identifier: Apache-2.0
#include "core/compile/computation.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/base/random.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

constexpr size_t kDigits = 8;  // Digits of a hash in a record.
// The hash of every value that the backward pass makes. They are not compared, since autodiff may
// order its sums by the layout.
constexpr uint64_t kGradient = 1;

uint64_t combined(uint64_t hash, std::string_view text) { return path_hash(hash, text); }
uint64_t combined(uint64_t hash, uint64_t other) {
  return mixed_bits(hash + 1) ^ mixed_bits(other);
}

// The shape, without the layout.
std::string shape_text(const Type& type) {
  std::string text(dtype_name(type.dtype));
  for (const Axis& axis : type.axes) text += fmt::format(" {}={}", axis.name, axis.size);
  return text;
}

std::string attributes_text(const Attributes& attributes) {
  std::string text;
  for (const Attributes::Entry& entry : attributes.entries()) {
    const Type* type = std::get_if<Type>(&entry.value);
    text += type == nullptr ? Attributes({entry}).text() : entry.name + "=" + shape_text(*type);
    text += ' ';
  }
  return text;
}

// Whether the result is the operand, as far as numbers and gradients are concerned.
bool passes_through(const Graph& graph, const Node& node) {
  return node.op->identity && !node.op->stops_gradient && node.inputs.size() == 1 &&
         graph.type(node.inputs[0]).dtype == graph.type(node.outputs[0]).dtype;
}

std::string place_of(const Node& node) {
  std::string text(node.op->name);
  if (!node.path.empty()) text += " in " + node.path;
  if (node.site.known()) text += fmt::format(" ({})", node.site.text());
  return text;
}

}  // namespace

Computation::Computation(const Graph& step) {
  std::vector<uint64_t> inputs;
  for (const GraphInput& input : step.inputs())
    inputs.push_back(combined(combined(static_cast<uint64_t>(input.kind), input.name),
                              shape_text(step.type(input.value))));
  const Hashes values = hashes(step, inputs);
  std::map<std::string, uint64_t> results;
  for (const GraphOutput& output : step.outputs())
    if (output.is_update || output.name == "loss") results[output.name] = values[output.value];
  uint64_t all = 0;
  for (const auto& [name, hash] : results) all = combined(combined(all, name), hash);
  results_ = static_cast<uint32_t>(all);
}

Computation::Hashes Computation::hashes(const Graph& graph, const std::vector<uint64_t>& inputs) {
  Hashes hashes(graph.values().size());
  for (size_t i = 0; i < inputs.size(); ++i) hashes[graph.inputs()[i].value] = inputs[i];
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::kBackward) {
      for (const ValueId output : node.outputs) hashes[output] = kGradient;
    } else if (passes_through(graph, node)) {
      hashes[node.outputs[0]] = hashes[node.inputs[0]];
    } else if (is_repeat(node)) {
      hash_loop(node, &hashes);
    } else {
      hash_node(graph, node, &hashes);
    }
  }
  return hashes;
}

void Computation::hash_node(const Graph& graph, const Node& node, Hashes* hashes) {
  uint64_t hash = combined(combined(0, node.op->name), attributes_text(node.attributes));
  for (const ValueId input : node.inputs) hash = combined(hash, (*hashes)[input]);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::string shape = shape_text(graph.type(node.outputs[i]));
    (*hashes)[node.outputs[i]] = combined(combined(hash, i), shape);
  }
  operations_.push_back({static_cast<uint32_t>(hash), place_of(node)});
}

// A value of the body is hashed by what it depends on, not by its position: autodiff adds results,
// and a metric adds a carry. The second pass sees what an iteration made of each carry.
void Computation::hash_loop(const Node& node, Hashes* hashes) {
  const Loop loop(node);
  const uint64_t kind = combined(combined(static_cast<uint64_t>(loop.first()), loop.axis()),
                                 static_cast<uint64_t>(loop.count() * 2 + loop.reversed()));
  std::vector<uint64_t> inputs = {combined(kind, "index")};
  for (size_t i = 0; i < loop.operands(); ++i) {
    const bool is_constant = i >= loop.carries() + loop.slices();
    const uint64_t operand = (*hashes)[loop.operand(i)];
    inputs.push_back(
        is_constant ? operand
                    : combined(combined(kind, i < loop.carries() ? "carry" : "slice"), operand));
  }
  const size_t before = operations_.size();
  Hashes inside = this->hashes(loop.body(), inputs);
  for (size_t i = 0; i < loop.carries(); ++i)
    inputs[1 + i] = combined(inputs[1 + i], inside[loop.carry_out(i)]);
  operations_.resize(before);
  inside = this->hashes(loop.body(), inputs);
  for (size_t i = 0; i < loop.outputs(); ++i) {
    const uint64_t made = inside[loop.output_in(i)];
    (*hashes)[loop.output(i)] =
        made == kGradient ? kGradient
                          : combined(combined(kind, i < loop.carries() ? "last" : "stack"), made);
  }
}

std::string Computation::record() const {
  std::vector<uint32_t> hashes;
  for (const Operation& each : operations_) hashes.push_back(each.hash);
  std::ranges::sort(hashes);
  const auto repeated = std::ranges::unique(hashes);
  hashes.erase(repeated.begin(), repeated.end());
  std::string text = fmt::format("{:08x}", results_);
  for (const uint32_t hash : hashes) text += fmt::format("{:08x}", hash);
  return text;
}

std::optional<std::string> Computation::difference(std::string_view record) const {
  if (record.substr(0, kDigits) == fmt::format("{:08x}", results_)) return std::nullopt;
  std::vector<std::string_view> known;
  for (size_t at = kDigits; at + kDigits <= record.size(); at += kDigits)
    known.push_back(record.substr(at, kDigits));
  for (const Operation& each : operations_)
    if (!std::ranges::binary_search(known, fmt::format("{:08x}", each.hash))) return each.text;
  return "it omits an operation, or passes another value on";
}

}  // namespace tessera
