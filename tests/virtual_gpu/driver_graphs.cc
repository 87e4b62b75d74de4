// SPDX-License-Identifier: Apache-2.0
// Driver functions: capture of streams into graphs, and their launch. The nodes of a graph run in
// any order that its edges permit.
#include <algorithm>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"

namespace tessera::virtual_gpu {
namespace {

// The names of captured work that the nodes of `frontier` do not come after.
std::vector<std::string> unjoined(const Graph& graph, const std::vector<size_t>& frontier) {
  std::vector<bool> joined(graph.nodes.size());
  for (const size_t node : frontier) joined[node] = true;
  std::vector<std::string> names;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (!joined[i]) {
      names.push_back(graph.nodes[i].task.name);
      continue;
    }
    for (const size_t earlier : graph.nodes[i].after) joined[earlier] = true;
  }
  return names;
}

// A component of the clocks for each chain of nodes.
std::vector<size_t> components_of(State& s, const Graph& graph) {
  std::vector<size_t> components;
  std::vector<bool> continued(graph.nodes.size());
  for (const GraphNode& node : graph.nodes) {
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
  return with_context([&](State& s, const auto&) {
    const StreamPtr stream = s.streams.find(handle);
    if (stream == nullptr)
      return s.reject(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      "capturing the default stream, or one that does not exist");
    if (stream->capture != nullptr)
      return s.reject(CUDA_ERROR_ILLEGAL_STATE, stream->name + " is captured already");
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    s.captures.push_back(stream->capture);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return with_context([&](State& s, const auto&) {
    const StreamPtr stream = s.streams.find(handle);
    *graph = nullptr;
    if (stream == nullptr || stream->capture == nullptr)
      return s.reject(CUDA_ERROR_ILLEGAL_STATE, "cuStreamEndCapture: nothing is captured");
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture->origin != stream) {
      capture->valid = false;
      return s.reject(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                      fmt::format("the capture did not begin on {}", stream->name));
    }
    const std::vector<size_t> frontier = stream->frontier;
    s.end_capture(capture);
    if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (const auto names = unjoined(*capture->graph, frontier); !names.empty())
      return s.reject(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                      fmt::format("{} is captured, and {} does not wait for it before the "
                                  "capture ends",
                                  names.front(), stream->name));
    *graph = s.graphs.add(capture->graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const StreamPtr stream = find_stream(s, device, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->valid   ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                         : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph_handle,
                                     unsigned long long) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const std::shared_ptr<Graph> graph = s.graphs.find(graph_handle);
    if (graph == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such graph");
    auto executable = std::make_shared<ExecutableGraph>();
    executable->device = device;
    executable->graph = std::make_shared<const Graph>(*graph);
    executable->components = components_of(s, *graph);
    *handle = s.executables.add(std::move(executable));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const StreamPtr stream = find_stream(s, device, stream_handle);
    const std::shared_ptr<ExecutableGraph> graph = s.executables.find(handle);
    if (stream == nullptr || graph == nullptr)
      return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such stream or graph");
    if (stream->capture != nullptr) return s.refuse(*stream, "cuGraphLaunch");
    const WorkPtr begin = s.submit(
        stream, {.name = "the begin of a graph", .run = nullptr, .host = {}}, {&graph->last, 1});
    std::vector<WorkPtr> work;
    for (size_t i = 0; i < graph->graph->nodes.size(); ++i) {
      const GraphNode& node = graph->graph->nodes[i];
      std::vector<WorkPtr> after = {begin};
      for (const size_t earlier : node.after) after.push_back(work[earlier]);
      work.push_back(s.submit_node(node, *stream, graph->components[i], after));
    }
    graph->last =
        s.submit(stream, {.name = "the end of a graph", .run = nullptr, .host = {}}, work);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return with_context([&](State& s, const auto&) {
    return s.graphs.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return with_context([&](State& s, const auto&) {
    const std::shared_ptr<ExecutableGraph> graph = s.executables.find(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::vector<size_t>& components = graph->components;
    std::sort(components.begin(), components.end());
    components.erase(std::unique(components.begin(), components.end()), components.end());
    for (const size_t component : components) s.retire_component(component);
    s.executables.remove(handle);
    return CUDA_SUCCESS;
  });
}
