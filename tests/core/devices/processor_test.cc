// SPDX-License-Identifier: Apache-2.0
// The chosen level, and the measured peak FLOP/s, the denominator of MFU: no matrix product may be
// faster.
#include "core/devices/cpu/processor.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <hwy/highway.h>

#include "core/devices/cpu/device.h"
#include "core/ops/einsum.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// FLOP/s of a product of 512 x 512 matrices, the median of some runs.
double product_rate(DType dtype, Device& device) {
  const std::string name(dtype_name(dtype));
  Trial trial(Mesh(), {name + "[\"m=512 k=512\"]", name + "[\"k=512 n=512\"]"});
  einsum("m k, k n -> m n", trial.inputs()[0], trial.inputs()[1]);
  const std::unique_ptr<Kernel> kernel =
      device.prepare(trial.graph(), trial.graph().nodes().front());
  constexpr int64_t kBytes = 512 * 512 * 4;
  const int64_t bytes = 3 * kBytes + kernel->scratch_bytes();
  const DeviceAddress memory = device.allocate(bytes);
  REQUIRE_FALSE(memory.is_null());
  const std::vector<DeviceAddress> from = {memory, memory + kBytes};
  const std::vector<DeviceAddress> to = {memory + 2 * kBytes};
  const std::unique_ptr<Stream> stream = device.make_stream(StreamUse::kCompute);
  std::vector<double> seconds;
  for (int run = 0; run < 15; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    stream->launch(*kernel, {from, to, memory + 3 * kBytes});
    stream->synchronize();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  device.release(memory, bytes);
  std::nth_element(seconds.begin(), seconds.begin() + 7, seconds.end());
  return 2.0 * 512 * 512 * 512 / seconds[7];
}

TEST_CASE("no matrix product is faster than the peak") {
  const auto device = make_cpu_device(0);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    INFO(dtype_name(dtype) << " on " << device->description());
    REQUIRE(product_rate(dtype, *device) <= device->peak_flops(dtype));
  }
}

TEST_CASE("kernels of higher levels than the chosen one are never dispatched to") {
  const int64_t of_avx512 = HWY_AVX3 | HWY_AVX3_DL;
  const int64_t usable = (cpu_level(), hwy::SupportedTargets());
  REQUIRE(((usable & HWY_AVX2) != 0) == (cpu_level() >= CpuLevel::kAvx2));
  REQUIRE(((usable & of_avx512) != 0) == (cpu_level() >= CpuLevel::kAvx512));
}

TEST_CASE("the peak of a device is measured once; for bf16 it is that of f32 if bf16 is widened") {
  const auto device = make_cpu_device(2);
  const double f32 = device->peak_flops(DType::kF32), bf16 = device->peak_flops(DType::kBF16);
  REQUIRE(f32 > 1e9);
  REQUIRE(device->peak_flops(DType::kF32) == f32);
  if (cpu_level() < CpuLevel::kAvx512Bf16) REQUIRE(bf16 == f32);
}

}  // namespace
}  // namespace tessera
