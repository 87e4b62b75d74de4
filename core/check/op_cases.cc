// SPDX-License-Identifier: Apache-2.0
#include "core/check/op_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/check/run_graph.h"
#include "core/compile/memory/step_program.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/gather.h"
#include "core/ops/inverse_root.h"
#include "core/ops/newton_schulz.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/order.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/rounding.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Comparison {
  double error = 0.0;    // In units of the tolerance.
  int64_t element = -1;  // Where it is.
};

// Returns the element with the largest error. NaN equals only NaN.
Comparison compare(const std::vector<double>& got, const std::vector<double>& expected,
                   double tolerance) {
  double largest = 1e-3;
  for (const double value : expected)  // Without infinities and kEmptyLse.
    if (std::abs(value) < 1e29) largest = std::max(largest, std::abs(value));
  Comparison worst;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    double error = std::abs(got[i] - expected[i]) / (tolerance * largest);
    if (std::isnan(error)) error = kInfinity;
    if (error > worst.error) worst = {error, static_cast<int64_t>(i)};
  }
  return worst;
}

double tolerance_of(const OpCase& row, const Device& device, DType operands, DType result) {
  if (operands == DType::kBF16 || result == DType::kBF16) return row.tolerance_bf16;
  if (!device.has_kernel(*row.op)) return row.tolerance_f32;
  return row.tolerance_f32_of_kernel.value_or(row.tolerance_f32);
}

std::string element_text(const Comparison& at, const std::vector<double>& got,
                         const std::vector<double>& expected) {
  const auto i = static_cast<size_t>(at.element);
  return fmt::format("element {}: got {}, expected {} ({:.3g} times the tolerance)", at.element,
                     got[i], expected[i], at.error);
}

// Device memory of the operands of one launch, aligned as in a step.
class LaunchMemory {
 public:
  LaunchMemory(Device& device, const std::vector<int64_t>& sizes) : device_(device) {
    for (const int64_t size : sizes) {
      begins_.push_back(bytes_);
      bytes_ += aligned(size);
    }
    bytes_ = std::max(bytes_, kAlignment);
    memory_ = device.allocate(bytes_);
    if (memory_.is_null()) fail("the device has no memory for {} bytes", bytes_);
  }
  ~LaunchMemory() { device_.release(memory_, bytes_); }
  LaunchMemory& operator=(LaunchMemory&&) = delete;  // Neither copied nor moved.

  DeviceAddress at(size_t i) const { return memory_ + begins_[i]; }

 private:
  Device& device_;
  std::vector<int64_t> begins_;
  int64_t bytes_ = 0;
  DeviceAddress memory_;
};

// Returns the results of one node's kernel on these operands.
std::vector<std::vector<double>> run_node(const Graph& graph, const Node& node, Device& device,
                                          const std::vector<std::vector<double>>& operands) {
  const std::unique_ptr<Kernel> kernel = device.prepare(graph, node);
  std::vector<int64_t> sizes;
  for (const ValueId id : node.inputs) sizes.push_back(graph.type(id).bytes());
  for (const ValueId id : node.outputs) sizes.push_back(graph.type(id).bytes());
  sizes.push_back(kernel->scratch_bytes());
  const LaunchMemory memory(device, sizes);
  const std::unique_ptr<Stream> stream = device.make_stream(StreamUse::kCompute);
  std::vector<DeviceAddress> from, to;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    stream->copy_from_host(memory.at(i), encoded(graph.type(node.inputs[i]).dtype, operands[i]));
    from.push_back(memory.at(i));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) to.push_back(memory.at(from.size() + i));
  stream->launch(*kernel, {from, to, memory.at(sizes.size() - 1)});
  std::vector<std::vector<double>> results;
  for (size_t i = 0; i < to.size(); ++i) {
    std::vector<std::byte> bytes(static_cast<size_t>(sizes[from.size() + i]));
    stream->copy_to_host(bytes, to[i]);
    stream->synchronize();
    results.push_back(decode_values(graph.type(node.outputs[i]), bytes.data()));
  }
  return results;
}

std::string operand_types(const Graph& graph, const Node& node) {
  std::vector<std::string> types;
  for (const ValueId id : node.inputs) types.push_back(graph.type(id).text_sized());
  return fmt::format("{}", fmt::join(types, ", "));
}

// Returns "tanh", or "fused (mul, add)".
std::string kernel_name(const Node& node) {
  if (node.bodies.empty()) return std::string(node.op->name);
  std::vector<std::string_view> inner;
  for (const Node& each : node.bodies.front()->nodes()) inner.push_back(each.op->name);
  return fmt::format("{} ({})", node.op->name, fmt::join(inner, ", "));
}

// Returns the interpreter's results of a node. Those of nodes of a fused loop are rounded to their
// dtypes before other nodes read them, as the loop rounds them.
std::vector<ReferenceArray> expected_results(const Graph& graph, const Node& node,
                                             const std::vector<const ReferenceArray*>& operands) {
  if (node.op != &kFusedOp) return evaluate_node(graph, node, operands);
  const Graph& body = *node.bodies[0];
  std::map<ValueId, ReferenceArray> results, read;
  for (size_t i = 0; i < operands.size(); ++i) read[body.inputs()[i].value] = *operands[i];
  for (const Node& each : body.nodes()) {
    std::vector<const ReferenceArray*> pointers;
    for (const ValueId id : each.inputs) pointers.push_back(&read.at(id));
    const ValueId made = each.outputs[0];
    const ReferenceArray result = evaluate_node(body, each, pointers)[0];
    read[made] = {result.axes, rounded(body.type(made), result.values)};
    results[made] = result;
  }
  std::vector<ReferenceArray> expected;
  for (const GraphOutput& output : body.outputs()) expected.push_back(results.at(output.value));
  return expected;
}

// Describes how the kernel's results differ from the interpreter's on the interpreter's operands,
// rounded to their dtypes; empty if within tolerance.
std::string node_mismatch(const Graph& graph, const Node& node, const OpCase& row, DType dtype,
                          Device& device, const std::map<std::string, ReferenceArray>& values) {
  std::vector<std::vector<double>> operands;
  std::vector<ReferenceArray> arrays;
  std::vector<const ReferenceArray*> pointers;
  for (const ValueId id : node.inputs) {
    const Type& type = graph.type(id);
    operands.push_back(rounded(type, values.at(fmt::format("{}", id)).values));
    arrays.push_back({type.axes, operands.back()});
  }
  for (const ReferenceArray& array : arrays) pointers.push_back(&array);
  const std::vector<ReferenceArray> expected = expected_results(graph, node, pointers);
  const std::vector<std::vector<double>> got = run_node(graph, node, device, operands);
  for (size_t i = 0; i < got.size(); ++i) {
    const Type& type = graph.type(node.outputs[i]);
    const Comparison worst =
        compare(got[i], expected[i].values, tolerance_of(row, device, dtype, type.dtype));
    if (worst.error > 1.0)
      return fmt::format("kernel {} of {}, result {} {}, {}", kernel_name(node),
                         operand_types(graph, node), i, type.text_sized(),
                         element_text(worst, got[i], expected[i].values));
  }
  return "";
}

// Returns the first kernel of a compiled case that is wrong on correct operands; empty if all are
// right.
std::string wrong_kernel(Graph compiled, const ReferenceInputs& inputs, const OpCase& row,
                         DType dtype, Device& device) {
  for (const ValueId id : compiled.values().ids()) compiled.add_output(fmt::format("{}", id), id);
  const std::map<std::string, ReferenceArray> values = evaluate(compiled, inputs);
  for (const Node& node : compiled.nodes()) {
    if (node.op->op_class == OpClass::kView || !device.has_kernel(*node.op)) continue;
    std::string problem = node_mismatch(compiled, node, row, dtype, device, values);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace

std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all = primitive_cases();
  std::ranges::move(composite_cases(), std::back_inserter(all));
  return all;
}

OpCase& add_case(std::vector<OpCase>& rows, const OpDef& op, std::vector<std::string> inputs,
                 std::function<CaseResults(const Tensors&)> build) {
  rows.push_back({.op = &op, .inputs = std::move(inputs), .build = std::move(build)});
  return rows.back();
}

std::string family_of(const OpCase& row) {
  static const std::map<const OpDef*, std::string> kFamilies = {
      {&kGatherOp, "gather"},
      {&kScatterAddOp, "gather"},
      {&kPickOp, "gather"},
      {&kScatterAlongOp, "gather"},
      {&kArgsortOp, "order"},
      {&kSortOp, "order"},
      {&kTopKOp, "order"},
      {&kCumulativeSumOp, "order"},
      {&kRmsNormOp, "norm"},
      {&kRmsNormGradOp, "norm"},
      {&kLayerNormOp, "norm"},
      {&kLayerNormGradOp, "norm"},
      {&kSoftmaxOp, "softmax"},
      {&kSoftmaxGradOp, "softmax"},
      {&kCrossEntropyGradOp, "cross_entropy"},
      {&kCrossEntropyShardOp, "cross_entropy"},
      {&kCrossEntropyShardGradOp, "cross_entropy"},
      {&kAttentionGradOp, "attention"},
      {&kAttentionSinksOp, "attention"},
      {&kCacheUpdateOp, "cached_attention"},
      {&kRandomUniformOp, "random"},
      {&kDropoutOp, "random"},
      {&kStochasticRoundOp, "random"},
      {&kAdamUpdateOp, "optimizer"},
      {&kNewtonSchulzOp, "optimizer"},
      {&kInverseRootOp, "optimizer"}};
  const auto found = kFamilies.find(row.op);
  if (found != kFamilies.end()) return found->second;
  switch (row.op->op_class) {
    case OpClass::kElementwise:
      return "elementwise";
    case OpClass::kReduction:
      return row.op == &kReduceSumOp || row.op == &kReduceMaxOp ? "reduction"
                                                                : std::string(row.op->name);
    case OpClass::kView:
    case OpClass::kDataMovement:
    case OpClass::kReshard:
      return "layout";
    case OpClass::kGenerator:
      return "generator";
    case OpClass::kContraction:
    case OpClass::kCollective:
    case OpClass::kLoop:
    case OpClass::kOther:
      break;
  }
  return std::string(row.op->name);
}

std::string floats_of(const std::string& axes) { return "float[\"" + axes + "\"]"; }

std::string type_with(std::string_view type, std::string_view dtype) {
  constexpr std::string_view kFloat = "float[";
  if (!type.starts_with(kFloat)) return std::string(type);
  return std::string(dtype) + std::string(type.substr(kFloat.size() - 1));
}

bool takes_floats(const OpCase& row) {
  return std::ranges::any_of(row.inputs,
                             [](const std::string& type) { return type.starts_with("float"); });
}

std::string case_name(const OpCase& row, DType dtype) {
  std::vector<std::string> types;
  for (const std::string& type : row.inputs) types.push_back(type_with(type, dtype_name(dtype)));
  return fmt::format("{} of {}", row.op->name,
                     types.empty() ? "nothing" : fmt::format("{}", fmt::join(types, ", ")));
}

Graph traced_case(const OpCase& row, DType dtype, const Mesh& mesh) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  Tensors inputs;
  for (size_t i = 0; i < row.inputs.size(); ++i)
    inputs.push_back(input(fmt::format("x{}", i), InputKind::kBatch,
                           parse_type(type_with(row.inputs[i], dtype_name(dtype)))));
  const Tensors results = row.build(inputs);
  for (size_t i = 0; i < results.size(); ++i) output(fmt::format("y{}", i), results[i]);
  return graph;
}

CaseReport check_case(const OpCase& row, DType dtype, Device& device) {
  const Mesh mesh = Mesh::standard({1, 1, 1});
  const Graph graph = traced_case(row, dtype, mesh);
  const ReferenceInputs inputs = rounded(graph, sample_inputs(graph, row.ids));
  Graph compiled;
  CompileOptions options;
  options.mesh = mesh;
  options.verify_passes = true;
  options.on_stage = [&](std::string_view stage, const Graph& at) {
    if (stage == "schedule") compiled = at;
  };
  const auto got = run_graph(graph, inputs, device, options);
  const auto expected = evaluate(graph, inputs, mesh);
  CaseReport report;
  for (const auto& [name, values] : got) {
    const Type& type = graph.type(graph.find_output(name)->value);
    const Comparison worst =
        compare(values, expected.at(name).values, tolerance_of(row, device, dtype, type.dtype));
    report.error = std::max(report.error, worst.error);
    if (worst.error <= 1.0 || !report.mismatch.empty()) continue;
    report.mismatch = fmt::format("result {} {}, {}", name, type.text_sized(),
                                  element_text(worst, values, expected.at(name).values));
    const std::string kernel = wrong_kernel(compiled, inputs, row, dtype, device);
    if (!kernel.empty()) report.mismatch = kernel;
  }
  if (!report.mismatch.empty())
    report.mismatch = fmt::format("{}: {}", case_name(row, dtype), report.mismatch);
  return report;
}

CasesReport check_cases(const std::vector<OpCase>& rows, Device& device) {
  CasesReport report;
  for (const OpCase& row : rows) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (dtype != DType::kF32 && !takes_floats(row)) continue;
      ++report.cases;
      std::string problem;
      try {
        const CaseReport one = check_case(row, dtype, device);
        problem = one.mismatch;
        report.error = std::max(report.error, one.error);
      } catch (const Error& error) {
        problem = fmt::format("{}: {}", case_name(row, dtype), error.what());
      }
      if (!problem.empty())
        report.problems.push_back(fmt::format("op {}: {}", row.op->name, problem));
    }
  }
  return report;
}

}  // namespace tessera
