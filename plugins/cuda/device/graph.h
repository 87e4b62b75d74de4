// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: the work of a step, captured once from its streams and launched as one piece. The
// host then makes one call for a step instead of several for each kernel, and the GPU starts a
// kernel without waiting for the host. All addresses in a step are fixed by its memory plan, and
// what changes from step to step (batch, learning rate, step number) is in the arena, so a graph
// never has to be updated.
#pragma once

#include <functional>

#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// "off" launches the kernels of each step one by one.
inline constexpr const char* kGraphVariable = "TESSERA_CUDA_GRAPH";
// Whether steps use graphs: by default, unless a kernel says why not
// (CudaKernel::why_not_captured). Error for an unknown value of the variable.
bool uses_graphs();

class ExecutableGraph {
 public:
  // Captures what `enqueue` asks of `stream`, and of streams that wait for it and that it waits for
  // again. Error if the driver refuses; what `enqueue` throws is thrown, too. The streams can be
  // used in any case.
  ExecutableGraph(const Context& context, CUstream stream, const std::function<void()>& enqueue);
  ~ExecutableGraph();
  ExecutableGraph(const ExecutableGraph&) = delete;
  ExecutableGraph& operator=(const ExecutableGraph&) = delete;

  void launch(CUstream stream) const;

 private:
  const Context& context_;
  CUgraphExec graph_ = nullptr;
};

// Whether work for the stream goes into a graph now.
bool is_captured(const Context& context, CUstream stream);

// Prints on standard error, once in a process, that steps run without graphs.
void note_no_graph(const std::string& why);

}  // namespace tessera::cuda
