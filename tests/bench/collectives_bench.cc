// SPDX-License-Identifier: Apache-2.0
// Rates of collectives between the devices of one process, compared with copying the same bytes:
// bench_collectives [seconds per measurement].
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/core.h>

#include "core/compile/cost.h"
#include "core/devices/cpu/device.h"
#include "core/ops/reshard.h"
#include "tasks/planner/calibrate/calibrate.h"
#include "tasks/planner/calibrate/kernel_timer.h"

namespace tessera {
namespace {

void measure(const OpDef& op, int64_t devices, int64_t bytes, double seconds) {
  const std::vector<Graph> graphs = collective_graphs(op, devices, bytes);
  const double taken = KernelTimer(make_cpu_devices(devices, static_cast<int>(devices)), seconds)
                           .collective_seconds(graphs);
  const auto sent = static_cast<double>(sent_bytes(graphs[0], graphs[0].nodes().front()));
  // The bound: each device copies as many bytes as it sends, without waiting.
  const auto size = static_cast<size_t>(bytes);
  std::vector<std::vector<std::byte>> in, out;
  for (int64_t device = 0; device < devices; ++device) {
    in.emplace_back(size, std::byte{1});
    out.emplace_back(size);
  }
  const double bound = median_round(devices, seconds, [&](int64_t device, int64_t) {
    const auto own = static_cast<size_t>(device);
    const std::byte* const next = in[(own + 1) % in.size()].data();
    for (auto left = static_cast<int64_t>(sent); left > 0; left -= bytes)
      std::memcpy(out[own].data(), next, static_cast<size_t>(std::min(left, bytes)));
  });
  fmt::print("{:15} {} devices {:>9} bytes {:>9.1f} us {:>6.2f} GB/s a device, {:.2f} of memcpy\n",
             op.name, devices, bytes, taken * 1e6, sent / taken * 1e-9, bound / taken);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 0.3;
  for (const tessera::OpDef* op :
       {&tessera::kAllGatherOp, &tessera::kReduceScatterOp, &tessera::kAllReduceOp})
    for (const int64_t devices : {2, 4, 8})
      for (const int64_t bytes : {int64_t{4096}, int64_t{1} << 20, int64_t{16} << 20})
        tessera::measure(*op, devices, bytes, seconds);
  return 0;
}
