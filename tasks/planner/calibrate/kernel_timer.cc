// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/kernel_timer.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/base/seconds.h"
#include "core/devices/reference/array.h"
#include "core/graph/op.h"
#include "core/runtime/comm/cpu_communicator.h"
#include "core/runtime/executor/device_threads.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kMostSets = 256;
constexpr size_t kFewestRounds = 3, kMostRounds = 100000;

// The memory of one device for sets of a node's operands.
class Operands {
 public:
  Operands(Device& device, std::unique_ptr<Kernel> kernel, const Graph& graph, const Node& node,
           int64_t sets, int64_t integers)
      : device_(device), kernel_(std::move(kernel)) {
    std::vector<Type> types;
    for (const ValueId value : node.inputs) types.push_back(graph.type(value));
    inputs_ = types.size();
    for (const ValueId value : node.outputs) types.push_back(graph.type(value));
    std::vector<int64_t> offsets;
    for (const Type& type : types) {
      offsets.push_back(set_bytes_);
      set_bytes_ += aligned(type.bytes());
    }
    bytes_ = sets * set_bytes_ + aligned(kernel_->scratch_bytes());
    memory_ = device_.allocate(bytes_);
    if (memory_.is_null())
      fail("not enough memory to measure {}: {} bytes are needed", node.op->name, bytes_);
    for (int64_t set = 0; set < sets; ++set) {
      for (size_t i = 0; i < types.size(); ++i) {
        addresses_.push_back(memory_ + (set * set_bytes_ + offsets[i]));
        if (i < inputs_) fill(types[i], addresses_.back(), integers);
      }
    }
    in_set_ = types.size();
    stream_ = device_.make_stream(StreamUse::kCompute);
  }
  ~Operands() {
    stream_.reset();
    device_.release(memory_, bytes_);
  }
  Operands& operator=(Operands&&) = delete;  // Neither copied nor moved.

  void launch(int64_t turn) {
    const size_t sets = addresses_.size() / std::max<size_t>(1, in_set_);
    const DeviceAddress* const first =
        addresses_.data() + (static_cast<size_t>(turn) % std::max<size_t>(1, sets)) * in_set_;
    stream_->launch(*kernel_, {.inputs = {first, inputs_},
                               .outputs = {first + inputs_, in_set_ - inputs_},
                               .scratch = memory_ + (bytes_ - aligned(kernel_->scratch_bytes()))});
  }
  void synchronize() { stream_->synchronize(); }

 private:
  static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  // Small numbers of both signs, no two neighbours equal. An f32 scalar is 1: the step's scale.
  void fill(const Type& type, DeviceAddress at, int64_t integers) {
    std::vector<double> values(static_cast<size_t>(type.elements()), 1.0);
    for (size_t i = 0; i < values.size() && values.size() > 1; ++i)
      values[i] = is_floating(type.dtype)
                      ? 0.5 * std::sin(0.7 * static_cast<double>(i % 4096))
                      : static_cast<double>((i * 7919) % static_cast<size_t>(integers));
    if (type.dtype == DType::kBool) std::ranges::fill(values, 1.0);
    device_.map(at, type.bytes(), HostAccess::kWrite, [&](std::span<std::byte> bytes) {
      encode_values(type.dtype, values, bytes.data());
    });
  }

  Device& device_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<Stream> stream_;
  DeviceAddress memory_;
  int64_t bytes_ = 0, set_bytes_ = 0;
  std::vector<DeviceAddress> addresses_;  // By set; in a set inputs, then outputs.
  size_t inputs_ = 0, in_set_ = 0;
};

int64_t operand_bytes(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (const auto* values : {&node.inputs, &node.outputs})
    for (const ValueId value : *values) bytes += graph.type(value).bytes();
  return std::max<int64_t>(1, bytes);
}

}  // namespace

double median_round(int64_t threads, double seconds,
                    const std::function<void(int64_t thread, int64_t round)>& work) {
  std::vector<double> times;
  times.reserve(kMostRounds);
  bool done = false, is_first = true;
  std::atomic<bool> failed = false;
  Clock::time_point begin;
  Clock::time_point first = Clock::now();
  std::barrier all_here(threads, [&]() noexcept {
    if (begin != Clock::time_point{}) {
      if (is_first) first = Clock::now();
      if (!is_first) times.push_back(seconds_since(begin));
      is_first = false;
    }
    const bool is_enough = seconds_since(first) > seconds && times.size() >= kFewestRounds;
    done = failed || is_enough || times.size() >= kMostRounds;
    begin = Clock::now();
  });
  const auto run = [&](int64_t thread) {
    int64_t round = 0;
    try {
      for (all_here.arrive_and_wait(); !done; all_here.arrive_and_wait()) work(thread, round++);
    } catch (...) {
      failed = true;
      all_here.arrive_and_drop();
      throw;
    }
  };
  // Without a limit of time, since the threads use what is on this one's stack.
  DeviceThreads(threads, std::chrono::hours(1000)).run(run, [](const std::string&) {});
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  return times[times.size() / 2];
}

namespace {

// Short launches are repeated in a round, so that its begin does not count.
double median_launch(const std::vector<std::unique_ptr<Operands>>& operands, double seconds) {
  const auto timed = [&](int64_t repeats, double for_seconds) {
    const double round =
        median_round(std::ssize(operands), for_seconds, [&](int64_t thread, int64_t number) {
          Operands& own = *operands[static_cast<size_t>(thread)];
          for (int64_t i = 0; i < repeats; ++i) own.launch(number * repeats + i);
          own.synchronize();
        });
    return round / static_cast<double>(repeats);
  };
  constexpr double kRound = 1e-3;
  const double about = std::max(1e-7, timed(1, 0.0));
  return timed(static_cast<int64_t>(std::clamp(std::ceil(kRound / about), 1.0, 4096.0)), seconds);
}

}  // namespace

KernelTimer::KernelTimer(std::vector<std::unique_ptr<Device>> devices, double seconds)
    : devices_(std::move(devices)), seconds_(seconds) {
  CHECK(!devices_.empty(), "a timer of no devices");
}

double KernelTimer::launch_seconds(const Graph& graph, const Node& node, int64_t cold_bytes,
                                   int64_t integers) const {
  const int64_t sets = std::clamp<int64_t>(cold_bytes / operand_bytes(graph, node), 1, kMostSets);
  std::vector<std::unique_ptr<Operands>> operands;
  for (const auto& device : devices_)
    operands.push_back(std::make_unique<Operands>(*device, device->prepare(graph, node), graph,
                                                  node, sets, integers));
  return median_launch(operands, seconds_);
}

double KernelTimer::collective_seconds(const std::vector<Graph>& graphs) const {
  CHECK(graphs.size() == devices_.size(), "a graph for each device");
  const auto communicator = make_cpu_communicator({.local_devices = std::ssize(graphs)});
  std::vector<std::unique_ptr<Operands>> operands;
  for (size_t i = 0; i < graphs.size(); ++i) {
    const Node& node = graphs[i].nodes().front();
    operands.push_back(std::make_unique<Operands>(
        *devices_[i], communicator->prepare(static_cast<int64_t>(i), graphs[i], node), graphs[i],
        node, 1, 2));
  }
  return median_launch(operands, seconds_);
}

}  // namespace tessera
