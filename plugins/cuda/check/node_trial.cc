// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/check/node_trial.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "core/base/error.h"
#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/devices/reference/array.h"
#include "core/ops/fp8.h"
#include "plugins/cuda/attention/attention_choice.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kMostCompared = 1 << 20;

class ScopedSetting {
 public:
  ScopedSetting(const char* variable, const char* value) : variable_(variable) {
    if (const char* const before = std::getenv(variable)) before_ = before;
    ::setenv(variable, value, 1);
  }
  ~ScopedSetting() { ::setenv(variable_, before_.c_str(), 1); }  // "" is the default.
  ScopedSetting(const ScopedSetting&) = delete;
  ScopedSetting& operator=(const ScopedSetting&) = delete;

 private:
  const char* variable_;
  std::string before_;
};

double tolerance_of(const Node& node, DType result) {
  if (result == DType::kBF16) return 0x1p-6;
  return node.op == &kFp8ProductOp ? kFp8KernelTolerance : 2e-5;
}

}  // namespace

NodeTrial::NodeTrial(Device& gpu, const Graph& graph, const Node& node, int64_t integers)
    : gpu_(gpu), graph_(graph), node_(node), memory_(context_of(gpu)), timer_(context_of(gpu)) {
  for (const ValueId id : node.inputs) inputs_.push_back(made(id, integers));
}

// Random floats, integers below a bound, true.
DeviceAddress NodeTrial::made(ValueId id, int64_t integers) {
  const Type& type = graph_.type(id);
  Context& context = context_of(gpu_);
  const DeviceAddress address(memory_.allocate(type.bytes()));
  if (address.is_null()) return address;
  if (type.dtype == DType::kF32 || type.dtype == DType::kBF16) {
    fill_with_random(context, timer_.stream(), pointer_of(address), type.elements(),
                     dtype_bytes(type.dtype));
    return address;
  }
  std::vector<double> values(static_cast<size_t>(type.elements()));
  uint32_t state = 1;
  for (double& value : values) {
    state = state * 1664525u + 1013904223u;
    value = type.dtype == DType::kBool ? 1.0 : static_cast<double>((state >> 8) % integers);
  }
  const std::unique_ptr<Stream> stream = gpu_.make_stream(StreamUse::kCopy);
  stream->copy_from_host(address, encoded(type.dtype, values));
  stream->synchronize();
  return address;
}

NodeTrial::Run NodeTrial::run() {
  const std::unique_ptr<Kernel> kernel = gpu_.prepare(graph_, node_);
  auto& it = static_cast<CudaKernel&>(*kernel);
  Run run{.implementation = std::string(it.implementation())};
  for (const ValueId id : node_.outputs) run.outputs.push_back(made(id, 1));
  const DeviceAddress scratch(memory_.allocate(kernel->scratch_bytes()));
  if (!memory_.complete() || !timer_.has_memory()) fail("the GPU has not enough memory");
  const auto milliseconds = timer_.least_time([&] {
    it.enqueue(timer_.stream(), {inputs_, run.outputs, scratch});
    return true;
  });
  CHECK(milliseconds.has_value(), "no run was refused");
  run.seconds = 1e-3 * *milliseconds;
  return run;
}

NodeTrial::Run NodeTrial::run_own() {
  const ScopedSetting products(kGemmVariable, "reference"), attention(kAttentionVariable, "own");
  return run();
}

std::vector<double> NodeTrial::values(DeviceAddress from, DType dtype, int64_t begin,
                                      int64_t count) const {
  const std::unique_ptr<Stream> stream = gpu_.make_stream(StreamUse::kCopy);
  std::vector<std::byte> bytes(static_cast<size_t>(count * dtype_bytes(dtype)));
  stream->copy_to_host(bytes, from + begin * dtype_bytes(dtype));
  stream->synchronize();
  return decode_values(make_type(dtype, {{"element", count, {}}}), bytes.data());
}

void NodeTrial::expect_equal(const Run& got, const Run& expected) const {
  for (size_t i = 0; i < node_.outputs.size(); ++i) {
    const Type& type = graph_.type(node_.outputs[i]);
    const int64_t count = std::min(type.elements(), kMostCompared);
    for (const int64_t begin : {int64_t{0}, type.elements() - count}) {
      const std::vector<double> have = values(got.outputs[i], type.dtype, begin, count);
      const std::vector<double> want = values(expected.outputs[i], type.dtype, begin, count);
      double largest = 1e-3;
      for (const double each : want) largest = std::max(largest, std::abs(each));
      for (size_t at = 0; at < want.size(); ++at)
        if (!(std::abs(have[at] - want[at]) <= tolerance_of(node_, type.dtype) * largest))
          fail("element {} of result {} is {} by {}, but {} by {}",
               begin + static_cast<int64_t>(at), i, have[at], got.implementation, want[at],
               expected.implementation);
    }
  }
}

}  // namespace tessera::cuda
