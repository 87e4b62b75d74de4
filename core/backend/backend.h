// SPDX-License-Identifier: Apache-2.0
// The device interface: memory and prepared kernels. It sees graphs of *local* types (after
// lowering); it knows nothing of passes, meshes or training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace tessera {

// The operands of one launch, in the node's order. Buffers are row-major, 64-byte aligned unless
// they are views at an offset (then aligned to the element).
struct LaunchArgs {
  std::span<const std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  std::byte* scratch = nullptr;  // scratch_bytes() of it, 64-byte aligned.
};

// One node made ready to run: shapes resolved, library primitives created. Running allocates
// nothing and may be repeated. Thread-compatible: one run at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }
  virtual void run(const LaunchArgs& args) = 0;
  // Whether output `output` may lie in the buffer of input `input` (same bytes), each element being
  // read before it is written.
  virtual bool may_overwrite(int64_t output, int64_t input) const {
    static_cast<void>(output), static_cast<void>(input);
    return false;
  }
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view kind() const = 0;         // "cpu"
  virtual std::string description() const = 0;       // "cpu: 2 threads, avx512 on AMD EPYC"
  virtual double peak_flops(DType dtype) const = 0;  // Of arithmetic in registers alone.

  // Zeroed, page-friendly memory, for the one arena; nullptr if there is not enough.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory, int64_t bytes) = 0;

  // A kernel for a node of a lowered graph. Error naming the op if this backend has none.
  virtual std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) = 0;
  virtual bool has_kernel(std::string_view op) const = 0;

  // Host <-> device; on a CPU, plain copies.
  virtual void write(std::byte* destination, std::span<const std::byte> source) = 0;
  virtual void read(std::span<std::byte> destination, const std::byte* source) = 0;
};

}  // namespace tessera
