// SPDX-License-Identifier: Apache-2.0
// Two runs of a program at a time: the host is ahead of the device, and each run has its own
// inputs, results and failure.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/check/run_graph.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// A point at which a device waits until the test opens it.
class Gate {
 public:
  void set_open(bool open) {
    {
      const std::lock_guard lock(mutex_);
      open_ = open;
    }
    changed_.notify_all();
  }
  // A test that does not open the gate within a minute fails.
  void pass() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [this] { return open_; }))
      fail("the gate was never opened");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

// Counts launches that are done, and fails when `until_failure` has been counted down to 0.
class CountedKernel final : public HostKernel {
 public:
  CountedKernel(std::unique_ptr<Kernel> kernel, std::atomic<int>& done, int& until_failure)
      : kernel_(std::move(kernel)), done_(done), until_failure_(until_failure) {}
  int64_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  void run(const HostArgs& args) override {
    if (until_failure_ > 0 && --until_failure_ == 0) fail("planned failure");
    host_kernel(*kernel_).run(args);
    ++done_;
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  std::atomic<int>& done_;
  int& until_failure_;
};

// A CPU device whose stream works on a thread of its own, behind a gate.
class GatedDevice final : public Device {
 public:
  std::string_view kind() const override { return "cpu"; }
  std::string description() const override { return "gated " + cpu_->description(); }
  double peak_flops(DType dtype) const override { return cpu_->peak_flops(dtype); }
  int64_t available_bytes() const override { return cpu_->available_bytes(); }
  DeviceAddress allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  void release(DeviceAddress memory, int64_t bytes) override { cpu_->release(memory, bytes); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return std::make_unique<CountedKernel>(cpu_->prepare(graph, node), done, until_failure);
  }
  bool has_kernel(const OpDef& op) const override { return cpu_->has_kernel(op); }
  std::unique_ptr<Stream> make_stream(StreamUse) override {
    return make_thread_stream({.before_each = [this] { gate.pass(); }});
  }
  std::unique_ptr<Event> make_event() override { return make_host_event(); }
  bool is_asynchronous() const override { return true; }

  Gate gate;
  std::atomic<int> done = 0;
  int until_failure = 0;

 private:
  std::unique_ptr<Device> cpu_ = std::move(make_cpu_devices(1, 1)[0]);
};

// total += sum(x²), and sum(x²) itself.
class Sums {
 public:
  explicit Sums(Device& device) : executor_(device) {
    Graph graph;
    const Mesh mesh;
    const AxisRules rules;
    const TraceScope trace(graph, mesh, rules);
    const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"x=3\"]"));
    const Tensor total = input("total", InputKind::kState, parse_type("f32[]"));
    const Tensor sum = reduce_sum(square(x));
    output("sum", sum);
    output("new_total", total + sum);
    graph.add_update("total", (total + sum).id());
    executor_.add_program(graph, {});
    executor_.allocate();
  }
  Executor& executor() { return executor_; }
  int launches() const { return static_cast<int>(executor_.plan(0).launches.size()); }

  void start(double x) {
    executor_.write_input(0, "x", encoded(DType::kF32, {x, 0.0, 1.0}));
    executor_.start(0, names_);
  }

 private:
  Executor executor_;
  const std::vector<std::string> names_ = {"new_total", "sum"};
};

using Values = std::vector<double>;

TEST_CASE("a run is started while the device has not begun the one before") {
  GatedDevice device;
  Sums sums(device);
  REQUIRE(sums.executor().most_under_way() == 2);
  sums.executor().run(0);
  sums.executor().run(0);  // It may be captured, for which the host waits.
  const int done = device.done;
  device.gate.set_open(false);
  sums.start(1.0);
  sums.start(2.0);
  REQUIRE(device.done == done);
  device.gate.set_open(true);
  REQUIRE(sums.executor().finish() == Values{2.0f, 2.0f});
  REQUIRE(sums.executor().finish() == Values{7.0f, 5.0f});
}

TEST_CASE("runs under way have inputs and results of their own") {
  GatedDevice device;
  Sums sums(device);
  for (int round = 0; round < 20; ++round) {
    sums.start(round);
    sums.start(round + 0.5);
    REQUIRE(sums.executor().under_way() == 2);
    const auto sum = [](double x) { return static_cast<float>(x * x + 1.0); };
    REQUIRE(sums.executor().finish()[1] == sum(round));
    REQUIRE(sums.executor().finish()[1] == sum(round + 0.5));
  }
}

TEST_CASE("a device that works on the host's thread has one run at a time") {
  const auto devices = make_cpu_devices(1, 1);
  Sums sums(*devices[0]);
  REQUIRE(sums.executor().most_under_way() == 1);
  sums.start(2.0);
  REQUIRE(sums.executor().finish() == Values{5.0f, 5.0f});
}

TEST_CASE("a failure belongs to the run in which it happens") {
  for (const int failing : {0, 1}) {
    GatedDevice device;
    Sums sums(device);
    for (int i = 0; i < 2; ++i) {
      sums.start(i);
      sums.executor().finish();
    }
    device.until_failure = failing * sums.launches() + 1;
    sums.start(2.0);
    sums.start(3.0);
    if (failing == 1) REQUIRE(sums.executor().finish()[1] == 5.0f);
    REQUIRE_THROWS_WITH(sums.executor().finish(), Catch::Contains("planned failure"));
    REQUIRE(sums.executor().under_way() == 0);
  }
}

TEST_CASE("the results of a run are the elements of f32 arrays, one array after the other") {
  const auto devices = make_cpu_devices(1, 1);
  Executor executor(*devices[0]);
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"x=3\"]"));
  output("y", square(x));
  output("sum", reduce_sum(x));
  output("rounded", cast(x, DType::kBF16));
  executor.add_program(graph, {});
  executor.allocate();
  executor.write_input(0, "x", encoded(DType::kF32, {1.0, 2.0, 3.0}));
  executor.start(0, std::vector<std::string>{"sum", "y", "sum"});
  REQUIRE(executor.finish() == Values{6.0f, 1.0f, 4.0f, 9.0f, 6.0f});
  const auto error = [&](const std::string& name) {
    return error_of([&] { executor.start(0, std::vector<std::string>{name}); });
  };
  REQUIRE_THAT(error("rounded"),
               Catch::Contains("rounded is bf16[\"x=3\"], expected f32 or f64 with no split axis"));
  REQUIRE_THAT(error("z"), Catch::Contains("the program has no output 'z'"));
}

}  // namespace
}  // namespace tessera
