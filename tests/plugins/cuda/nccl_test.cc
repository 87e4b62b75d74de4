// SPDX-License-Identifier: Apache-2.0
// Tests the choice, loading, calls and failures of NCCL with a stand-in. Only the header of
// NVIDIA's library is used.
#include "plugins/cuda/communicator/nccl.h"

#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "plugins/cuda/communicator/nccl_communicator.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/stream.h"
#include "tests/plugins/cuda/fake_nccl.h"
#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/transports.h"
#include "tests/support/trial.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace tessera::cuda {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using Environment = std::map<std::string, std::string>;

#ifdef NCCL_VERSION_CODE
// Checks that the declarations in plugins/cuda/communicator/nccl.h match those of the library.
static_assert(sizeof(nccl::UniqueId) == sizeof(::ncclUniqueId));
static_assert(offsetof(nccl::Config, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(nccl::Config, version) == offsetof(::ncclConfig_t, version));
static_assert(offsetof(nccl::Config, blocking) == offsetof(::ncclConfig_t, blocking));
static_assert(nccl::kVersion == NCCL_VERSION(2, 14, 0));
#define TESSERA_SAME(name) static_assert(static_cast<int>(nccl::name) == static_cast<int>(::name))
TESSERA_SAME(ncclSuccess);
TESSERA_SAME(ncclSystemError);
TESSERA_SAME(ncclInternalError);
TESSERA_SAME(ncclInvalidArgument);
TESSERA_SAME(ncclInvalidUsage);
TESSERA_SAME(ncclRemoteError);
TESSERA_SAME(ncclInProgress);
TESSERA_SAME(ncclUint8);
TESSERA_SAME(ncclInt32);
TESSERA_SAME(ncclUint32);
TESSERA_SAME(ncclFloat32);
TESSERA_SAME(ncclFloat64);
TESSERA_SAME(ncclBfloat16);
TESSERA_SAME(ncclSum);
TESSERA_SAME(ncclMax);
#undef TESSERA_SAME
#endif

// Plans a fault of the stand-in that the plugin has loaded, until the end of the scope.
class PlannedFault {
 public:
  explicit PlannedFault(const std::string& fault) { set(fault); }
  ~PlannedFault() { set(""); }
  PlannedFault(const PlannedFault&) = delete;
  PlannedFault& operator=(const PlannedFault&) = delete;

 private:
  static void set(const std::string& fault) {
    void* const library = dlopen(fake_nccl_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    reinterpret_cast<decltype(&fake_nccl_set_fault)>(dlsym(library, "fake_nccl_set_fault"))(
        fault.c_str());
  }
};

const CommunicatorTrial kSum{
    Mesh({{"a", 2}}), {"a"}, "all_reduce", make_type(DType::kF32, {{"x", 8}})};

std::string choice(const Environment& environment) {
  const virtual_gpu::TestGpus gpus(environment);
  return error_of([&] { make_cuda_communicator({.local_devices = 2}); });
}

TEST_CASE("sums by the network switch are off in runs that must be deterministic") {
  const auto setting = [](const std::string& given, bool deterministic) {
    const ScopedVariable variable("NCCL_NVLS_ENABLE", given);
    const Gpus gpus("nccl", 2, 1, {.deterministic = deterministic});
    const char* const seen = std::getenv("NCCL_NVLS_ENABLE");
    return std::string(seen == nullptr ? "" : seen);
  };
  REQUIRE(setting("", true) == "0");
  REQUIRE(setting("", false) == "");
  REQUIRE(setting("1", true) == "1");  // A setting of the user is kept.
}

TEST_CASE("collectives by an unknown word, a missing library or an old one are refused") {
  REQUIRE_THAT(choice({{kCollectivesVariable, "ncll"}}),
               Contains("TESSERA_CUDA_COLLECTIVES=ncll: unknown; did you mean 'nccl'?; expected "
                        "peer or nccl"));
  REQUIRE_THAT(choice({{kCollectivesVariable, "nccl"}}),
               Contains("TESSERA_CUDA_COLLECTIVES=nccl: TESSERA_CUDA_DRIVER names another driver"));
  REQUIRE_THAT(choice({{kCollectivesVariable, "nccl"}, {"TESSERA_NCCL", "/nowhere/libnccl.so.2"}}),
               Contains("NCCL was not found: /nowhere/libnccl.so.2: cannot open") &&
                   Contains("or set TESSERA_NCCL to the file"));
  const PlannedFault old("old_version");
  // A library is loaded once per name; this is the same file by another name.
  const std::string other = TESSERA_BINARY_DIR "/lib/virtual_gpu/./fake_nccl.so";
  REQUIRE_THAT(choice({{kCollectivesVariable, "nccl"}, {"TESSERA_NCCL", other}}),
               Contains("NCCL is version 2.13.4, expected 2.14.0 or newer; update it"));
}

TEST_CASE("a library that is named is used, unless peer copies are asked for") {
  const auto communicator = [](Environment environment, int64_t devices) {
    environment["TESSERA_NCCL"] = fake_nccl_file();
    const virtual_gpu::TestGpus gpus(environment);
    const auto made = make_cuda_communicator({.local_devices = devices});
    return dynamic_cast<NcclCommunicator*>(made.get()) != nullptr ? "nccl" : "peer";
  };
  REQUIRE(communicator({}, 2) == std::string("nccl"));
  REQUIRE(communicator({}, 1) == std::string("peer"));
  REQUIRE(communicator({{kCollectivesVariable, "peer"}}, 2) == std::string("peer"));
}

TEST_CASE("collectives of several processes give the results of the CPU") {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  for (const int processes : {2, 4})
    for (const auto& axes : std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"b", "a"}}) {
      Gpus gpus("nccl", 4, 3, {}, processes);
      for (const CommunicatorTrial& trial : collective_trials(mesh, axes, DType::kF32))
        check_trial(trial, gpus);
    }
}

// Returns the errors of two processes that each need `devices` GPUs.
std::vector<std::string> errors_of_processes(const Environment& environment, int64_t devices) {
  const virtual_gpu::TestGpus gpus(environment);
  const auto transports = make_loopback(2, {"a", "a"});
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      errors[rank] = error_of([&] {
        make_cuda_communicator({.local_devices = devices, .transport = transports[rank]});
      });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST_CASE("processes that cannot have GPUs of their own, or NCCL, are refused") {
  Environment environment = collectives_environment("nccl");
  environment["TESSERA_VIRTUAL_GPUS"] = "1";
  for (const std::string& error : errors_of_processes(environment, 1))
    REQUIRE_THAT(error, Contains("processes 0 and 1 of host a use the same GPU, 0000:01:00.0"));
  environment["TESSERA_VIRTUAL_GPUS"] = "3";
  {
    const virtual_gpu::TestGpus gpus(environment);
    REQUIRE(first_gpu(1, 2) == 2);
    REQUIRE(first_gpu(3, 1) == 0);  // Each process sees only its own GPUs.
    REQUIRE_THAT(error_of([] { first_gpu(2, 1); }),
                 Contains("process 1 of this machine needs GPUs 2 to 3, but the driver shows 3"));
  }
  for (const std::string& error : errors_of_processes({}, 1))
    REQUIRE_THAT(error, Contains("--device=cuda in 2 processes needs NCCL: TESSERA_CUDA_DRIVER") &&
                            Contains("run one process with --devices=N"));
  environment[kCollectivesVariable] = "peer";
  for (const std::string& error : errors_of_processes(environment, 1))
    REQUIRE_THAT(error, Contains("TESSERA_CUDA_COLLECTIVES=peer connects the GPUs of one process"));
}

// Returns the errors of two GPUs that run a sum with this fault.
std::vector<std::string> errors_with(const std::string& fault, milliseconds timeout) {
  Gpus gpus("nccl", 2, 1, {.timeout = timeout});
  const PlannedFault planned(fault);
  return errors_of(kSum, gpus, {true, true});
}

TEST_CASE("errors of NCCL end the collectives of all GPUs of the process") {
  for (const std::string& error : errors_with("remote_error:1", milliseconds(60000)))
    REQUIRE_THAT(error, Contains("communicating: remote process exited or there was a network "
                                 "error (error 6); NCCL_DEBUG=INFO prints more"));
  const auto refused = errors_with("refused:1", milliseconds(1000));
  REQUIRE_THAT(refused[0] + refused[1],
               Contains("starting a collective: internal error (error 3)") &&
                   Contains("has waited 1 s in collective "));
  for (const std::string& error : errors_with("no_connection", milliseconds(60000)))
    REQUIRE_THAT(error, Contains("connecting 2 GPUs: unhandled system error (error 2)"));
}

TEST_CASE("a GPU that does not arrive at a collective of NCCL is named, and the wait ends") {
  const auto errors = errors_with("lost:1", milliseconds(1000));
  for (const std::string& error : errors)
    REQUIRE_THAT(error, Contains("has waited 1 s in collective 1, all_reduce over a [lm.ffn, "));
}

TEST_CASE("a process whose GPU does not arrive is named with its host") {
  Gpus gpus("nccl", 2, 1, {.timeout = milliseconds(1000)}, 2);
  const auto errors = errors_of(kSum, gpus, {true, false});
  REQUIRE_THAT(
      errors[0],
      Contains("device 0 (process 0, host host) has waited 1 s in collective 1, all_reduce "
               "over a [lm.ffn, ") &&
          Contains(", for device 1 (process 1, host host)") &&
          Contains("process 1 (host host) does not answer"));
}

// Sums over two GPUs twice, in place, by a graph that each GPU captures once and launches twice.
std::vector<float> replayed_sum(int64_t number, Device& device, Communicator& communicator) {
  CommunicatorTrial trial = kSum;
  trial.in_place = true;
  const Graph graph = trial_graph(trial, number);
  const auto kernel = communicator.prepare(number, graph, graph.nodes().front());
  const auto stream = device.make_stream(StreamUse::kCommunication);
  std::vector<float> values(8, 1.5f);
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  const DeviceAddress memory = device.allocate(bytes);
  stream->copy_from_host(memory, std::as_bytes(std::span(values)));
  stream->synchronize();
  CUgraph captured = nullptr;
  CUgraphExec executable = nullptr;
  communicator.begin_run(number);
  check_cuda(cuStreamBeginCapture(native(*stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin");
  static_cast<CudaKernel&>(*kernel).enqueue(native(*stream),
                                            {.inputs = {&memory, 1}, .outputs = {&memory, 1}});
  check_cuda(cuStreamEndCapture(native(*stream), &captured), "end");
  check_cuda(cuGraphInstantiate(&executable, captured, 0), "instantiate");
  communicator.end_run(number, 0);
  const int64_t sent_in_run = communicator.bytes_sent(number);
  CHECK(sent_in_run > 0);
  for (int run = 0; run < 2; ++run) {
    communicator.begin_run(number);
    check_cuda(cuGraphLaunch(executable, native(*stream)), "launch");
    stream->synchronize();
    communicator.end_run(number, 0);
    CHECK(communicator.bytes_sent(number) == (run + 2) * sent_in_run);
  }
  stream->copy_to_host(std::as_writable_bytes(std::span(values)), memory);
  stream->synchronize();
  check_cuda(cuGraphExecDestroy(executable), "destroy");
  check_cuda(cuGraphDestroy(captured), "destroy");
  device.release(memory, bytes);
  return values;
}

TEST_CASE("a collective of NCCL that was captured into a graph runs at each launch of it") {
  Gpus gpus("nccl", 2);
  std::vector<std::vector<float>> results(2);
  const auto errors =
      on_all_devices(gpus.communicators, [&](int64_t number, Communicator& communicator) {
        const auto device = static_cast<size_t>(number);
        results[device] = replayed_sum(number, *gpus.devices[device], communicator);
      });
  for (const std::string& error : errors) REQUIRE(error == "");
  for (const auto& result : results) REQUIRE(result == std::vector<float>(8, 6.0f));
}

TEST_CASE("the stand-in refuses what NCCL's guide calls invalid") {
  const virtual_gpu::TestGpus gpus;
  void* const file = dlopen(fake_nccl_file().c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(file != nullptr);
  Nccl library;
  library.for_each([&](auto& member, const char* name) {
    member = reinterpret_cast<std::decay_t<decltype(member)>>(dlsym(file, name));
  });
  nccl::UniqueId id;
  REQUIRE(library.ncclGetUniqueId(&id) == nccl::ncclSuccess);
  nccl::Config config;
  config.blocking = 0;
  nccl::Comm *first = nullptr, *same = nullptr, *second = nullptr;
  const auto connect = [&](nccl::Comm*& comm, int rank) {
    return library.ncclCommInitRankConfig(&comm, 2, id, rank, &config);
  };
  REQUIRE(connect(first, 0) == nccl::ncclInProgress);
  REQUIRE(connect(same, 1) == nccl::ncclInvalidUsage);  // Both ranks on one GPU.
  gpus.use(1);
  REQUIRE(connect(second, 1) == nccl::ncclInProgress);
  const CUdeviceptr memory = gpus.floats(8);
  const CUstream stream = gpus.stream();
  const auto sum = [&](CUdeviceptr to) {
    return library.ncclAllReduce(reinterpret_cast<const void*>(memory), reinterpret_cast<void*>(to),
                                 4, nccl::ncclFloat32, nccl::ncclSum, second, stream);
  };
  REQUIRE(sum(memory) == nccl::ncclInvalidUsage);  // It has not reported that it is connected.
  nccl::Result state = nccl::ncclInProgress;
  while (state == nccl::ncclInProgress) library.ncclCommGetAsyncError(second, &state);
  REQUIRE(state == nccl::ncclSuccess);
  REQUIRE(sum(memory + 8) == nccl::ncclInvalidArgument);  // It overlaps half of the operand.
  REQUIRE(sum(memory) == nccl::ncclInProgress);
  REQUIRE(sum(memory) == nccl::ncclInvalidUsage);
  for (nccl::Comm* const comm : {first, second}) library.ncclCommAbort(comm);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::cuda
