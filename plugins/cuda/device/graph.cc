// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/graph.h"

#include <atomic>
#include <string>

#include <fmt/format.h>

#include "core/base/terminal.h"
#include "plugins/cuda/device/setting_words.h"

namespace tessera::cuda {
namespace {

// A graph before it is made executable.
class Template {
 public:
  explicit Template(const Driver& driver) : driver_(driver) {}
  ~Template() {
    if (graph != nullptr) driver_.cuGraphDestroy(graph);
  }
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  CUgraph graph = nullptr;

 private:
  const Driver& driver_;
};

}  // namespace

bool uses_graphs() { return is_on(kGraphVariable); }

ExecutableGraph::ExecutableGraph(const Context& context, CUstream stream,
                                 const std::function<void()>& enqueue)
    : context_(context) {
  const Driver& driver = context.driver();
  Template made(driver);
  // Calls of other threads, such as the one that saves a checkpoint, do not disturb the capture.
  context.check(driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                "beginning the capture of a graph");
  try {
    enqueue();
  } catch (...) {
    driver.cuStreamEndCapture(stream, &made.graph);  // Otherwise the stream stays captured.
    throw;
  }
  context.check(driver.cuStreamEndCapture(stream, &made.graph), "capturing a graph");
  // Kernels keep the priorities of their streams: collectives run before other work.
  context.check(driver.cuGraphInstantiateWithFlags(&graph_, made.graph,
                                                   CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
                "making a graph executable");
  // A graph needs memory of the GPU beside the arena; whether there is some is known now.
  const CUresult uploaded = driver.cuGraphUpload(graph_, stream);
  if (uploaded != CUDA_SUCCESS) driver.cuGraphExecDestroy(graph_);
  context.check(uploaded, "giving a graph to the GPU");
}

ExecutableGraph::~ExecutableGraph() {
  if (context_.can_destroy()) context_.driver().cuGraphExecDestroy(graph_);
}

void ExecutableGraph::launch(CUstream stream) const {
  context_.check(context_.driver().cuGraphLaunch(graph_, stream), "launching a graph");
}

bool is_captured(const Context& context, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  context.driver().cuStreamIsCapturing(stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void note_no_graph(const std::string& why) {
  static std::atomic<bool> noted = false;
  if (noted.exchange(true)) return;
  print_error("note: steps run kernel by kernel, not as a CUDA graph: " + why);
}

}  // namespace tessera::cuda
