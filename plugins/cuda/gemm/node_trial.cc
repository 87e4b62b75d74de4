// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/node_trial.h"

#include <utility>

#include "core/check/run_graph.h"
#include "core/compile/memory/step_program.h"
#include "core/devices/reference/array.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {
namespace {

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// Integers below a bound, true.
std::vector<std::byte> drawn(const Type& type, int64_t integers) {
  std::vector<double> values(static_cast<size_t>(type.elements()), 1.0);
  uint32_t state = 1;
  for (double& value : values) {
    if (type.dtype == DType::kBool) break;
    state = state * 1664525u + 1013904223u;
    value = static_cast<double>((state >> 8) % integers);
  }
  return encoded(type.dtype, values);
}

}  // namespace

NodeTrial::NodeTrial(const Graph& graph, const Node& node, Context& context, int64_t integers)
    : graph_(graph),
      node_(node),
      context_(context),
      memory_(context),
      stream_(make_cuda_stream(context, StreamUse::kCompute)) {
  context.make_current();
  // All are parts of one array of random numbers.
  int64_t bytes = 0;
  std::vector<int64_t> begins;
  for (const ValueId id : node.inputs)
    begins.push_back(std::exchange(bytes, bytes + aligned(graph.type(id).bytes())));
  const DeviceAddress all = allocate(bytes);
  if (!has_memory()) return;
  const DType first = graph.type(node.inputs.front()).dtype;
  if (is_float(first)) fill(all, bytes, first);
  for (size_t i = 0; i < begins.size(); ++i) {
    const Type& type = graph.type(node.inputs[i]);
    inputs_.push_back(all + begins[i]);
    if (!is_float(type.dtype))
      write_input(i, drawn(type, integers));
    else if (type.dtype != first)
      fill(inputs_[i], type.bytes(), type.dtype);
  }
  stream_->synchronize();
}

void NodeTrial::fill(DeviceAddress to, int64_t bytes, DType dtype) {
  fill_with_random(context_, native(*stream_), pointer_of(to), bytes / dtype_bytes(dtype),
                   dtype_bytes(dtype));
}

void NodeTrial::write_input(size_t input, std::span<const std::byte> bytes) {
  stream_->copy_from_host(inputs_[input], bytes);
  stream_->synchronize();
}

NodeTrial::Places NodeTrial::places_for(const CudaKernel& kernel) {
  Places places{.scratch = scratch_for(kernel)};
  for (const ValueId output : node_.outputs) {
    const int64_t bytes = graph_.type(output).bytes();
    places.outputs.push_back(allocate(bytes));
    if (has_memory())
      context_.check(
          context_.driver().cuMemsetD8Async(pointer_of(places.outputs.back()), 0xff,
                                            static_cast<size_t>(bytes), native(*stream_)),
          "preparing a trial");
  }
  stream_->synchronize();
  return places;
}

void NodeTrial::run(CudaKernel& kernel, const LaunchArgs& args) {
  kernel.enqueue(native(*stream_), args);
  stream_->synchronize();
}

std::vector<double> NodeTrial::ends(const Places& places, size_t output, int64_t count) {
  const Type& type = graph_.type(node_.outputs[output]);
  const int64_t size = dtype_bytes(type.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(2 * count * size));
  const std::span<std::byte> both(bytes);
  stream_->copy_to_host(both.first(bytes.size() / 2), places.outputs[output]);
  stream_->copy_to_host(both.last(bytes.size() / 2),
                        places.outputs[output] + (type.elements() - count) * size);
  stream_->synchronize();
  return decode_values(make_type(type.dtype, {{"element", 2 * count, {}}}), bytes.data());
}

}  // namespace tessera::cuda
