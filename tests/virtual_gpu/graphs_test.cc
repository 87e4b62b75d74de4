// SPDX-License-Identifier: Apache-2.0
// Tests streams captured into graphs: fork and join, replay in random orders, and refused calls.
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::virtual_gpu {
namespace {

using Catch::Contains;

constexpr int kValues = 100;

// d = (a + 1) + (a + 1 + 1) on two streams, if `joined`.
struct ForkJoin {
  explicit ForkJoin(const TestGpus& test_gpus) : gpus(test_gpus) {}

  CUresult capture(CUgraph* graph, bool forked, bool joined) const {
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(gpus.add_one(add_one, b, a, kValues, stream) == CUDA_SUCCESS);
    if (forked) {
      REQUIRE(cuEventRecord(fork, stream) == CUDA_SUCCESS);
      REQUIRE(cuStreamWaitEvent(other, fork, 0) == CUDA_SUCCESS);
    }
    REQUIRE(gpus.add_one(add_one, c, b, kValues, forked ? other : stream) == CUDA_SUCCESS);
    REQUIRE(gpus.add_one(add_one, e, a, kValues, stream) == CUDA_SUCCESS);
    if (joined) {
      REQUIRE(cuEventRecord(join, other) == CUDA_SUCCESS);
      REQUIRE(cuStreamWaitEvent(stream, join, 0) == CUDA_SUCCESS);
    }
    REQUIRE(gpus.add(add, d, e, c, kValues, stream) == CUDA_SUCCESS);
    return cuStreamEndCapture(stream, graph);
  }

  const TestGpus& gpus;
  CUfunction add_one = gpus.function("add_one"), add = gpus.function("add");
  CUdeviceptr a = gpus.floats(kValues), b = gpus.floats(kValues), c = gpus.floats(kValues);
  CUdeviceptr d = gpus.floats(kValues), e = gpus.floats(kValues);
  CUstream stream = gpus.stream(), other = gpus.stream();
  CUevent fork = gpus.event(CU_EVENT_DISABLE_TIMING), join = gpus.event(CU_EVENT_DISABLE_TIMING);
};

TEST_CASE("a graph replays to one result in every order, and after the work before it") {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const TestGpus gpus(seed);
    const ForkJoin work(gpus);
    CUgraph graph = nullptr;
    REQUIRE(work.capture(&graph, true, true) == CUDA_SUCCESS);
    REQUIRE(gpus.read(work.d, 1, work.stream)[0] == 0.0f);  // Nothing has run.
    CUgraphExec executable = nullptr;
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
    for (int step = 0; step < 3; ++step) {
      REQUIRE(gpus.add_one(work.add_one, work.a, work.a, kValues, work.stream) == CUDA_SUCCESS);
      REQUIRE(cuGraphLaunch(executable, work.stream) == CUDA_SUCCESS);
    }
    // a = 3: (a + 1) + (a + 1 + 1).
    REQUIRE(gpus.read(work.d, kValues, work.stream) == std::vector<float>(kValues, 9.0f));
    REQUIRE(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(executable, work.stream) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(fault() == "a handle of nothing, or of what was destroyed");
  }
}

TEST_CASE("the nodes of a graph run in different orders") {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const TestGpus gpus(seed);
    const CUstream stream = gpus.stream(), other = gpus.stream();
    const CUevent fork = gpus.event(), join = gpus.event();
    std::string order;
    const auto note = [&](CUstream where, CUhostFn append) {
      REQUIRE(cuLaunchHostFunc(where, append, &order) == CUDA_SUCCESS);
    };
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    note(stream, [](void* text) { static_cast<std::string*>(text)->push_back('a'); });
    REQUIRE(cuEventRecord(fork, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(other, fork, 0) == CUDA_SUCCESS);
    note(stream, [](void* text) { static_cast<std::string*>(text)->push_back('b'); });
    note(other, [](void* text) { static_cast<std::string*>(text)->push_back('c'); });
    REQUIRE(cuEventRecord(join, other) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(stream, join, 0) == CUDA_SUCCESS);
    note(stream, [](void* text) { static_cast<std::string*>(text)->push_back('d'); });
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    orders.insert(order);
  }
  REQUIRE(orders == std::set<std::string>{"abcd", "acbd"});
}

TEST_CASE("two uses of memory in a graph without an edge are an error with both names") {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const TestGpus gpus(seed);
    const ForkJoin work(gpus);
    REQUIRE(cuStreamBeginCapture(work.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(work.fork, work.stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(work.other, work.fork, 0) == CUDA_SUCCESS);  // Before the kernel.
    REQUIRE(gpus.add_one(work.add_one, work.b, work.a, kValues, work.stream) == CUDA_SUCCESS);
    REQUIRE(gpus.add(work.add, work.c, work.b, work.b, kValues, work.other) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(work.join, work.other) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(work.stream, work.join, 0) == CUDA_SUCCESS);
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    REQUIRE(cuStreamEndCapture(work.stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(executable, work.stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(work.stream) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE_THAT(fault(), Contains("kernel add_one of a graph on stream"));
    REQUIRE_THAT(fault(), Contains("kernel add of a graph on stream"));
    REQUIRE_THAT(fault(), Contains("nothing orders the two"));
  }
}

TEST_CASE("a captured stream that is not joined again is an error with its name") {
  const TestGpus gpus;
  const ForkJoin work(gpus);
  CUgraph graph = nullptr;
  REQUIRE(work.capture(&graph, true, false) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  REQUIRE_THAT(fault(),
               Contains("kernel add_one is captured, and stream 6 of GPU 0 does not wait"));
  REQUIRE(work.capture(&graph, false, false) == CUDA_SUCCESS);  // Both streams can be used again.
}

struct IllegalCall {
  std::string name;
  CUresult (*call)(const ForkJoin& w);
  CUresult expected;
  std::string text;
};
float pageable = 0;
const IllegalCall kIllegalCalls[] = {
    {"synchronize", [](const ForkJoin& w) { return cuStreamSynchronize(w.stream); },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamSynchronize while stream 6 of GPU 0"},
    {"query", [](const ForkJoin& w) { return cuStreamQuery(w.stream); },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamQuery while"},
    {"allocate",
     [](const ForkJoin&) {
       CUdeviceptr memory = 0;
       return cuMemAlloc(&memory, 4);
     },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemAlloc while"},
    {"free", [](const ForkJoin& w) { return cuMemFree(w.a); },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemFree while"},
    {"pageable copy",
     [](const ForkJoin& w) { return cuMemcpyHtoDAsync(w.a, &pageable, 4, w.stream); },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a copy from pageable memory while"},
    {"wait of the host",
     [](const ForkJoin& w) {
       cuEventRecord(w.fork, w.stream);
       return cuEventSynchronize(w.fork);
     },
     CUDA_ERROR_CAPTURED_EVENT, "cuEventSynchronize of an event"},
    {"event of before",
     [](const ForkJoin& w) {
       cuEventRecord(w.join, w.other);
       return cuStreamWaitEvent(w.stream, w.join, 0);
     },
     CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "waits for an event that is not"},
    {"another capture",
     [](const ForkJoin& w) {
       cuEventRecord(w.fork, w.stream);
       cuStreamBeginCapture(w.other, CU_STREAM_CAPTURE_MODE_GLOBAL);
       return cuStreamWaitEvent(w.other, w.fork, 0);
     },
     CUDA_ERROR_STREAM_CAPTURE_MERGE, "of another capture"},
};

TEST_CASE("calls that a capture does not allow end it") {
  for (const IllegalCall& row : kIllegalCalls) {
    INFO(row.name);
    const TestGpus gpus;
    const ForkJoin work(gpus);
    REQUIRE(cuStreamBeginCapture(work.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(row.call(work) == row.expected);
    REQUIRE_THAT(fault(), Contains(row.text));
    CUgraph graph = nullptr;
    REQUIRE(cuStreamEndCapture(work.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REQUIRE(graph == nullptr);
  }
}

TEST_CASE("captures begin and end on one stream") {
  const TestGpus gpus;
  const ForkJoin work(gpus);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(work.stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE(cuStreamBeginCapture(work.stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(work.stream, CU_STREAM_CAPTURE_MODE_RELAXED) ==
          CUDA_ERROR_ILLEGAL_STATE);
  gpus.floats(4);  // A relaxed capture allows this.
  REQUIRE(cuEventRecord(work.fork, work.stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(work.other, work.fork, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(work.other, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  REQUIRE(cuStreamEndCapture(work.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  REQUIRE(cuStreamWaitEvent(work.other, work.fork, 0) == CUDA_ERROR_CAPTURED_EVENT);
}

TEST_CASE("the state of a capture can be queried") {
  const TestGpus gpus;
  const ForkJoin work(gpus);
  const auto status = [](CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    REQUIRE(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
    return status;
  };
  REQUIRE(status(work.stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  REQUIRE(cuStreamBeginCapture(work.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(work.fork, work.stream) == CUDA_SUCCESS);
  REQUIRE(status(work.other) == CU_STREAM_CAPTURE_STATUS_NONE);
  REQUIRE(cuStreamWaitEvent(work.other, work.fork, 0) == CUDA_SUCCESS);
  REQUIRE(status(work.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(status(work.other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(cuStreamSynchronize(work.other) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  REQUIRE(status(work.stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(work.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  REQUIRE(status(work.other) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("calls of another thread disturb a global capture only, and cannot end it") {
  const auto elsewhere = [](const TestGpus& gpus, const auto& call) {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      gpus.use(0);
      result = call();
    }).join();
    return result;
  };
  for (const bool global : {false, true}) {
    const TestGpus gpus;
    const CUstream stream = gpus.stream();
    REQUIRE(cuStreamBeginCapture(stream, global ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                                : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ==
            CUDA_SUCCESS);
    CUgraph graph = nullptr;
    REQUIRE(elsewhere(gpus, [&] { return cuStreamEndCapture(stream, &graph); }) ==
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    REQUIRE_THAT(fault(), Contains("the capture of stream 1 of GPU 0 was begun by another thread"));
    const auto allocate = [] {
      CUdeviceptr memory = 0;
      return cuMemAlloc(&memory, 4);
    };
    REQUIRE(elsewhere(gpus, allocate) ==
            (global ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS));
    REQUIRE(cuStreamEndCapture(stream, &graph) ==
            (global ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS));
  }
}

// Returns how often, of 200 launches, the node of the stream with high priority runs first.
int urgent_first(unsigned long long flags) {
  int count = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const TestGpus gpus(seed);
    const CUstream stream = gpus.stream(), urgent = gpus.stream(-5);
    const CUevent fork = gpus.event(), join = gpus.event();
    std::string order;
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(fork, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(urgent, fork, 0) == CUDA_SUCCESS);
    const auto note = [&](CUstream where, CUhostFn append) {
      REQUIRE(cuLaunchHostFunc(where, append, &order) == CUDA_SUCCESS);
    };
    note(stream, [](void* text) { static_cast<std::string*>(text)->push_back('a'); });
    note(urgent, [](void* text) { static_cast<std::string*>(text)->push_back('b'); });
    REQUIRE(cuEventRecord(join, urgent) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(stream, join, 0) == CUDA_SUCCESS);
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, flags) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    count += order == "ba" ? 1 : 0;
  }
  return count;
}

TEST_CASE("the nodes of a graph have the priorities of their streams if it is asked to") {
  const int without = urgent_first(0);
  const int with = urgent_first(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  REQUIRE((without > 60 && without < 140));
  REQUIRE((with > without && with < 200));
}

TEST_CASE("a graph reads page-locked memory when it runs") {
  const TestGpus gpus;
  const CUdeviceptr x = gpus.floats(4);
  const CUstream stream = gpus.stream();
  float* const host = gpus.pinned_floats(4);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyHtoDAsync(x, host, 16, stream) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
  for (const float value : {1.0f, 2.0f}) {
    std::fill_n(host, 4, value);
    REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(gpus.read(x, 4, stream) == std::vector<float>(4, value));
  }
  REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
  host[0] = 3.0f;
  cuStreamSynchronize(stream);
  REQUIRE_THAT(fault(), Contains("the host changed what a copy of 16 bytes from the host of a "
                                 "graph on stream 2 of GPU 0 reads"));
}

}  // namespace
}  // namespace tessera::virtual_gpu
