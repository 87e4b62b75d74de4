// SPDX-License-Identifier: Apache-2.0
// Kernels of elementwise ops, generators and `fused` nodes: tile programs over the thread pool.
#include <string_view>
#include <vector>

#include "core/backend/cpu/elementwise/elementwise_program.h"
#include "core/backend/cpu/elementwise/tile_interpreter.h"
#include "core/backend/cpu/registry.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

class ElementwiseKernel final : public HostKernel {
 public:
  ElementwiseKernel(TileProgram program, ThreadPool& pool)
      : program_(std::move(program)), grid_(make_tile_grid(program_)), pool_(pool) {
    // Less than this many additions are not worth waking a thread for.
    constexpr double kGrain = 16384.0;
    const double tile = static_cast<double>(grid_.rows * grid_.columns) * (program_.cost + 1.0);
    grain_ = std::max<int64_t>(1, static_cast<int64_t>(kGrain / tile));
  }

  int64_t scratch_bytes() const override { return pool_.size() * slot_lanes() * 4; }

  void run(const HostArgs& args) override {
    float* const lanes = reinterpret_cast<float*>(args.scratch);
    pool_.parallel(grid_.tiles, grain_, [&](Range tiles, int thread) {
      run_tiles(program_, grid_, tiles, args.inputs, args.outputs, lanes + thread * slot_lanes());
    });
  }

  // Each tile is read before it is written, if both lie in memory alike.
  bool may_overwrite(int64_t output, int64_t input) const override {
    const TileResult& result = program_.results[static_cast<size_t>(output)];
    for (const TileSource& source : program_.sources) {
      if (source.kind != TileSource::Kind::kInput || source.index != input) continue;
      return source.strides == result.strides &&
             dtype_bytes(source.dtype) == dtype_bytes(result.dtype);
    }
    return false;
  }

 private:
  int64_t slot_lanes() const { return program_.slots * grid_.capacity; }

  TileProgram program_;
  TileGrid grid_;
  ThreadPool& pool_;
  int64_t grain_ = 1;
};

std::unique_ptr<Kernel> make_elementwise(const Graph& graph, const Node& node, ThreadPool& pool) {
  return std::make_unique<ElementwiseKernel>(compile_tiles(graph, node), pool);
}

const std::vector<KernelRegistrar> kRegisterElementwise = [] {
  std::vector<KernelRegistrar> registrars{{kFusedOp, make_elementwise}};
  for (const std::string_view op : tile_ops()) registrars.emplace_back(op, make_elementwise);
  return registrars;
}();

}  // namespace
}  // namespace tessera
