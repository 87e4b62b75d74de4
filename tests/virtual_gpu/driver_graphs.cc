// SPDX-License-Identifier: Apache-2.0
// Driver functions: capture of streams into graphs, and their launch. The nodes of a graph run in
// any order that its edges permit.
#include <algorithm>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"

namespace tessera::virtual_gpu {
namespace {

// Returns a node that no node of `frontier` depends on; null if there is none.
const GraphNode* unjoined(const Graph& graph, const std::vector<size_t>& frontier) {
  std::vector<bool> joined(graph.size());
  for (const size_t node : frontier) joined[node] = true;
  for (size_t i = graph.size(); i-- > 0;) {
    if (!joined[i]) return &graph[i];
    for (const size_t earlier : graph[i].after) joined[earlier] = true;
  }
  return nullptr;
}

// Assigns a component of the clocks to each chain of nodes.
std::vector<size_t> components_of(State& s, const Graph& graph) {
  std::vector<size_t> components;
  std::vector<bool> continued(graph.size());
  for (const GraphNode& node : graph) {
    const auto open = std::find_if(node.after.begin(), node.after.end(),
                                   [&](size_t earlier) { return !continued[earlier]; });
    if (open == node.after.end()) {
      components.push_back(s.new_component());
    } else {
      continued[*open] = true;
      components.push_back(components[*open]);
    }
  }
  return components;
}

}  // namespace
}  // namespace tessera::virtual_gpu

using namespace tessera::virtual_gpu;

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return call([&](const Call& c) {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "an unknown mode of a capture"};
    const StreamPtr stream = c.s.streams.at(handle);
    if (stream->capture != nullptr)
      throw Refusal{CUDA_ERROR_ILLEGAL_STATE, stream->name + " is captured already"};
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    c.s.captures.push_back(stream->capture);
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  *graph = nullptr;
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    const CapturePtr capture = stream->capture;
    if (capture == nullptr)
      throw Refusal{CUDA_ERROR_ILLEGAL_STATE, stream->name + " is not captured"};
    if (capture->origin != stream) {
      capture->valid = false;
      throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                    "the capture did not begin on " + stream->name};
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != std::this_thread::get_id())
      throw Refusal{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                    "the capture of " + stream->name + " was begun by another thread"};
    const std::vector<size_t> frontier = stream->frontier;
    c.s.end_capture(capture);
    if (!capture->valid) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, ""};
    if (const GraphNode* node = unjoined(capture->graph, frontier))
      throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                    fmt::format("{} is captured, and {} does not wait for it before the capture "
                                "ends",
                                node->task.name, stream->name)};
    *graph = c.s.graphs.add(std::make_shared<Graph>(std::move(capture->graph)));
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call([&](const Call& c) {
    const CapturePtr capture = c.s.streams.at(handle)->capture;
    *status = capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->valid   ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                 : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph_handle,
                                     unsigned long long flags) {
  return call([&](const Call& c) {
    const std::shared_ptr<Graph> graph = c.s.graphs.at(graph_handle);
    if ((flags & ~static_cast<unsigned long long>(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)) !=
        0)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "flags of a graph that the virtual GPU lacks"};
    *handle = c.s.executables.add(std::make_shared<ExecutableGraph>(
        ExecutableGraph{c.device, *graph, components_of(c.s, *graph), flags != 0, nullptr}));
  });
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(stream_handle);
    c.s.executables.at(handle);
    c.s.check_not_captured(*stream, "cuGraphUpload");
    if (c.s.plan_says("out_of_memory"))
      throw Refusal{CUDA_ERROR_OUT_OF_MEMORY, "planned: no memory for a graph"};
    c.s.submit(stream, {Task::Kind::kMark, "giving a graph to the GPU"});
  });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(stream_handle);
    const std::shared_ptr<ExecutableGraph> graph = c.s.executables.at(handle);
    c.s.check_not_captured(*stream, "cuGraphLaunch");
    ++c.s.graph_launches;
    const WorkPtr begin =
        c.s.submit(stream, {Task::Kind::kMark, "the begin of a graph"}, {graph->last});
    std::vector<WorkPtr> work;
    for (const GraphNode& node : graph->nodes) {
      std::vector<WorkPtr> after = {begin};
      for (const size_t earlier : node.after) after.push_back(work[earlier]);
      const int priority = graph->uses_node_priority ? node.priority : stream->priority;
      work.push_back(
          c.s.submit_node(node, *stream, priority, graph->components[work.size()], after));
    }
    graph->last = c.s.submit(stream, {Task::Kind::kMark, "the end of a graph"}, work);
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return call([&](const Call& c) { c.s.graphs.remove(handle); });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return call([&](const Call& c) {
    const std::shared_ptr<ExecutableGraph> graph = c.s.executables.remove(handle);
    const std::set<size_t> components(graph->components.begin(), graph->components.end());
    for (const size_t component : components) c.s.retire_component(component);
  });
}
