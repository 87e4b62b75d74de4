// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference_device.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "core/backend/reference/interpreter.h"
#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

template <typename T>
void encode_as(const std::vector<double>& values, std::byte* bytes) {
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    if constexpr (std::is_same_v<T, BFloat16>) {
      element = BFloat16(static_cast<float>(values[i]));
    } else {
      element = static_cast<T>(values[i]);
    }
    std::memcpy(bytes + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename T>
std::vector<double> decode_as(int64_t count, const std::byte* bytes) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, bytes + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, BFloat16>) {
      values.push_back(static_cast<float>(element));
    } else {
      values.push_back(static_cast<double>(element));
    }
  }
  return values;
}

// A graph of one node.
class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(const Graph& graph, const Node& node, const ReferenceDeviceOptions& options)
      : options_(options), elementwise_(node.op->op_class == OpClass::kElementwise) {
    is_copy_ = node.op->name == "copy";
    Node alone = node;
    alone.inputs.clear();
    for (const ValueId value : node.inputs)
      alone.inputs.push_back(single_.add_input(fmt::format("{}", single_.inputs().size()),
                                               InputKind::kLoop, graph.type(value)));
    std::vector<Type> types;
    for (const ValueId value : node.outputs) types.push_back(graph.type(value));
    if (is_copy_) {
      single_.add_output("0", alone.inputs[0]);
      return;
    }
    const NodeId id = single_.add_node(std::move(alone), types);
    for (const ValueId value : single_.node(id).outputs)
      single_.add_output(fmt::format("{}", single_.outputs().size()), value);
  }

  // Copies have none, as in any backend: planning adds some without asking.
  int64_t scratch_bytes() const override { return is_copy_ ? 0 : options_.scratch_bytes; }

  void run(const LaunchArgs& args) override {
    if (scratch_bytes() > 0) std::memset(args.scratch, 0x5a, static_cast<size_t>(scratch_bytes()));
    ReferenceInputs inputs;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const GraphInput& input = single_.inputs()[i];
      inputs[input.name] = decode(single_.type(input.value), args.inputs[i]);
    }
    const auto outputs = evaluate(single_, inputs);
    for (size_t i = 0; i < args.outputs.size(); ++i) {
      const GraphOutput& output = single_.outputs()[i];
      encode(single_.type(output.value).dtype, outputs.at(output.name).values, args.outputs[i]);
    }
  }

  bool may_overwrite(int64_t output, int64_t input) const override {
    const Type& from = single_.type(single_.inputs()[static_cast<size_t>(input)].value);
    const Type& to = single_.type(single_.outputs()[static_cast<size_t>(output)].value);
    return options_.may_overwrite && elementwise_ && from == to;
  }

 private:
  ReferenceDeviceOptions options_;
  bool elementwise_;
  bool is_copy_ = false;
  Graph single_;
};

class ReferenceDevice final : public Device {
 public:
  explicit ReferenceDevice(const ReferenceDeviceOptions& options) : options_(options) {}

  std::string_view kind() const override { return "reference"; }
  std::string description() const override { return "reference interpreter"; }
  double peak_flops(DType) const override { return 1.0; }
  std::byte* allocate(int64_t bytes) override {
    return static_cast<std::byte*>(std::calloc(1, static_cast<size_t>(bytes)));
  }
  void release(std::byte* memory, int64_t) override { std::free(memory); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return std::make_unique<ReferenceKernel>(graph, node, options_);
  }
  bool has_kernel(std::string_view) const override { return true; }
  void write(std::byte* destination, std::span<const std::byte> source) override {
    std::memcpy(destination, source.data(), source.size());
  }
  void read(std::span<std::byte> destination, const std::byte* source) override {
    std::memcpy(destination.data(), source, destination.size());
  }

 private:
  ReferenceDeviceOptions options_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(const ReferenceDeviceOptions& options) {
  return std::make_unique<ReferenceDevice>(options);
}

void encode(DType dtype, const std::vector<double>& values, std::byte* bytes) {
  switch (dtype) {
    case DType::kF64:
      return encode_as<double>(values, bytes);
    case DType::kF32:
      return encode_as<float>(values, bytes);
    case DType::kBF16:
      return encode_as<BFloat16>(values, bytes);
    case DType::kI32:
      return encode_as<int32_t>(values, bytes);
    case DType::kU32:
      return encode_as<uint32_t>(values, bytes);
    case DType::kBool:
      return encode_as<uint8_t>(values, bytes);
  }
}

std::vector<double> decode(const Type& type, const std::byte* bytes) {
  switch (type.dtype) {
    case DType::kF64:
      return decode_as<double>(type.elements(), bytes);
    case DType::kF32:
      return decode_as<float>(type.elements(), bytes);
    case DType::kBF16:
      return decode_as<BFloat16>(type.elements(), bytes);
    case DType::kI32:
      return decode_as<int32_t>(type.elements(), bytes);
    case DType::kU32:
      return decode_as<uint32_t>(type.elements(), bytes);
    case DType::kBool:
      return decode_as<uint8_t>(type.elements(), bytes);
  }
  return {};
}

}  // namespace tessera
