// SPDX-License-Identifier: Apache-2.0
// Random programs of kernels, events and waits on three streams, run directly and as graphs. A
// program has a fault exactly if two of its kernels use the same memory, one writing, without an
// order that the test finds by following the edges; other programs have one result in every order.
#include <atomic>
#include <bitset>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::virtual_gpu {
namespace {

constexpr size_t kStreams = 3, kEvents = 2, kBuffers = 4, kLength = 16;
constexpr int kFloats = 70;

struct Instruction {
  enum class Kind { kKernel, kRecord, kWait, kHostWait };
  Kind kind;
  size_t stream = 0, event = 0;
  size_t to = 0, from = 0;  // Buffers: to = from + 1.
};
using Program = std::vector<Instruction>;

Program random_program(std::mt19937& random, bool host_waits) {
  using Kind = Instruction::Kind;
  const size_t length = 3 + random() % (kLength - 2);
  Program program;
  std::bitset<kEvents> recorded;
  while (program.size() < length) {
    Instruction next{.kind = static_cast<Kind>(random() % (host_waits ? 8 : 7) / 2),
                     .stream = random() % kStreams,
                     .event = random() % kEvents,
                     .to = random() % kBuffers,
                     .from = random() % kBuffers};
    if (next.kind == Kind::kHostWait && !host_waits) next.kind = Kind::kKernel;
    if (next.kind == Kind::kWait && !recorded[next.event]) continue;
    if (next.kind == Kind::kRecord) recorded.set(next.event);
    program.push_back(next);
  }
  return program;
}

bool has_conflict(const Program& program) {
  using Set = std::bitset<kLength>;  // Kernels that are known to be complete.
  Set host, streams[kStreams], events[kEvents], before[kLength];
  for (size_t i = 0; i < program.size(); ++i) {
    const Instruction& it = program[i];
    Set& stream = streams[it.stream];
    if (it.kind == Instruction::Kind::kHostWait) host |= stream;
    if (it.kind == Instruction::Kind::kRecord) events[it.event] = stream | host;
    if (it.kind == Instruction::Kind::kWait) stream |= events[it.event];
    if (it.kind != Instruction::Kind::kKernel) continue;
    before[i] = stream | host;
    stream = before[i];
    stream.set(i);
    for (size_t j = 0; j < i; ++j) {
      const Instruction& other = program[j];
      const bool both_use = it.to == other.to || it.to == other.from || it.from == other.to;
      if (other.kind == it.kind && both_use && !before[i][j]) return true;
    }
  }
  return false;
}

// Returns the values of the buffers after the program ran instruction by instruction.
std::vector<float> values_after(const Program& program, int times) {
  std::vector<float> values(kBuffers);
  for (int i = 0; i < times; ++i)
    for (const Instruction& it : program)
      if (it.kind == Instruction::Kind::kKernel) values[it.to] = values[it.from] + 1;
  return values;
}

class Machine {
 public:
  explicit Machine(uint64_t seed) : gpus_(seed) {
    for (size_t i = 0; i < kStreams; ++i) streams_.push_back(gpus_.stream());
    for (size_t i = 0; i < kEvents + kStreams; ++i) events_.push_back(gpus_.event());
    for (size_t i = 0; i < kBuffers; ++i) buffers_.push_back(gpus_.floats(kFloats));
  }

  void run(const Program& program) {
    for (const Instruction& it : program) {
      const CUstream stream = streams_[it.stream];
      switch (it.kind) {
        case Instruction::Kind::kKernel:
          gpus_.add_one(add_one_, buffers_[it.to], buffers_[it.from], kFloats, stream);
          break;
        case Instruction::Kind::kRecord:
          cuEventRecord(events_[it.event], stream);
          break;
        case Instruction::Kind::kWait:
          cuStreamWaitEvent(stream, events_[it.event], 0);
          break;
        case Instruction::Kind::kHostWait:
          cuStreamSynchronize(stream);
          break;
      }
    }
  }

  void run_as_graph(const Program& program, int times) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    REQUIRE(cuStreamBeginCapture(streams_[0], CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(events_[kEvents], streams_[0]) == CUDA_SUCCESS);
    for (size_t i = 1; i < kStreams; ++i)
      REQUIRE(cuStreamWaitEvent(streams_[i], events_[kEvents], 0) == CUDA_SUCCESS);
    run(program);
    for (size_t i = 1; i < kStreams; ++i) {
      REQUIRE(cuEventRecord(events_[kEvents + i], streams_[i]) == CUDA_SUCCESS);
      REQUIRE(cuStreamWaitEvent(streams_[0], events_[kEvents + i], 0) == CUDA_SUCCESS);
    }
    REQUIRE(cuStreamEndCapture(streams_[0], &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    for (int i = 0; i < times; ++i) cuGraphLaunch(executable, streams_[0]);
  }

  // Empty after a fault.
  std::vector<float> results() const {
    for (const CUstream stream : streams_) cuStreamSynchronize(stream);
    std::vector<float> values;
    if (cuCtxSynchronize() != CUDA_SUCCESS) return values;
    for (const CUdeviceptr buffer : buffers_)
      values.push_back(gpus_.read(buffer, kFloats, streams_[0]).back());
    return values;
  }

 private:
  TestGpus gpus_;
  CUfunction add_one_ = gpus_.function("add_one");
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUdeviceptr> buffers_;
};

TEST_CASE("random programs have a fault exactly where two kernels have no order") {
  std::mt19937 random(7);
  int faults = 0, results = 0;
  for (int i = 0; i < 150; ++i) {
    const Program program = random_program(random, true);
    const bool expected = has_conflict(program);
    (expected ? faults : results) += 1;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      INFO("program " << i << ", seed " << seed);
      Machine machine(seed);
      machine.run(program);
      REQUIRE(machine.results() == (expected ? std::vector<float>{} : values_after(program, 1)));
      REQUIRE(fault().empty() == !expected);
    }
  }
  REQUIRE(faults > 20);
  REQUIRE(results > 20);
}

TEST_CASE("random graphs have a fault exactly where two nodes have no order") {
  std::mt19937 random(8);
  int faults = 0, results = 0;
  for (int i = 0; i < 150; ++i) {
    const Program program = random_program(random, false);
    const bool expected = has_conflict(program);
    (expected ? faults : results) += 1;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      INFO("program " << i << ", seed " << seed);
      Machine machine(seed);
      machine.run_as_graph(program, 2);
      REQUIRE(machine.results() == (expected ? std::vector<float>{} : values_after(program, 2)));
      REQUIRE(fault().empty() == !expected);
    }
  }
  REQUIRE(faults > 20);
  REQUIRE(results > 20);
}

TEST_CASE("threads of the host use their GPUs at the same time") {
  constexpr size_t kThreads = 4;
  const TestGpus gpus(3);
  std::atomic<int> correct = 0;
  std::vector<CUfunction> functions;
  std::vector<CUdeviceptr> buffers;
  for (size_t i = 0; i < kThreads; ++i) {
    gpus.use(i);
    functions.push_back(gpus.function("add_one"));
    buffers.push_back(gpus.floats(kFloats));
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      CUstream stream = nullptr;
      bool ok = cuCtxSetCurrent(gpus.context(i)) == CUDA_SUCCESS &&
                cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS;
      for (int step = 0; step < 50; ++step) {
        const CUdeviceptr x = buffers[i];
        ok &= TestGpus::add_one(functions[i], x, x, kFloats, stream) == CUDA_SUCCESS;
        if (step % 10 == 9) ok &= cuStreamSynchronize(stream) == CUDA_SUCCESS;
      }
      std::vector<float> values(kFloats);
      ok &= cuMemcpyDtoHAsync(values.data(), buffers[i], 4 * kFloats, stream) == CUDA_SUCCESS;
      correct += ok && values == std::vector<float>(kFloats, 50.0f) ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(correct == kThreads);
}

}  // namespace
}  // namespace tessera::virtual_gpu
