// SPDX-License-Identifier: Apache-2.0
// The self-check on this machine: which errors of a faulty kernel it detects and how it reports
// them.
#include "tasks/run/modes/selfcheck.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/check/op_cases.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/graph/op.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

enum class Fault {
  kOneElement,  // The last element of the first result is wrong.
  kNotANumber,  // The last element is NaN.
  kUnserved,    // The op has no kernel.
  kMismatch,    // A library's kernel, tried in prepare(), differs from the device's own.
  kByThreads,   // The result is wrong with more than one thread.
};

class FaultyKernel final : public HostKernel {
 public:
  FaultyKernel(std::unique_ptr<Kernel> kernel, const Type& type, Fault fault)
      : kernel_(std::move(kernel)), type_(type), fault_(fault) {}
  int64_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return kernel_->may_overwrite(output, input);
  }
  void run(const HostArgs& args) override {
    host_kernel(*kernel_).run(args);
    std::byte* const last = args.outputs[0] + (type_.elements() - 1) * dtype_bytes(type_.dtype);
    if (type_.dtype == DType::kF32) spoil<float>(last);
    if (type_.dtype == DType::kBF16) spoil<BFloat16>(last);
  }

 private:
  template <typename T>
  void spoil(std::byte* at) const {
    T value;
    std::memcpy(&value, at, sizeof(T));
    const auto number = static_cast<float>(value);
    value = T(fault_ == Fault::kNotANumber ? std::numeric_limits<float>::quiet_NaN()
                                           : number * 1.0625f + 0.125f);
    std::memcpy(at, &value, sizeof(T));
  }

  std::unique_ptr<Kernel> kernel_;
  Type type_;
  Fault fault_;
};

// A CPU device with one faulty kernel.
class FaultyDevice final : public Device {
 public:
  FaultyDevice(int threads, std::string op, Fault fault)
      : device_(make_cpu_device(threads)), op_(std::move(op)), fault_(fault), threads_(threads) {}

  std::string_view kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description(); }
  double peak_flops(DType dtype) const override { return device_->peak_flops(dtype); }
  int64_t available_bytes() const override { return device_->available_bytes(); }
  DeviceAddress allocate(int64_t bytes) override { return device_->allocate(bytes); }
  void release(DeviceAddress memory, int64_t bytes) override { device_->release(memory, bytes); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    std::unique_ptr<Kernel> kernel = device_->prepare(graph, node);
    if (!holds(node)) return kernel;
    if (fault_ == Fault::kUnserved) fail("no kernel for op '{}'", op_);
    if (fault_ == Fault::kMismatch && rejects_) fail("{}: the library's differs", op_);
    if (fault_ == Fault::kMismatch) return kernel;
    if (fault_ == Fault::kByThreads && threads_ == 1) return kernel;
    return std::make_unique<FaultyKernel>(std::move(kernel), graph.type(node.outputs[0]), fault_);
  }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  void reject_mismatches() override { rejects_ = true; }
  std::unique_ptr<Stream> make_stream(StreamUse use) override { return device_->make_stream(use); }
  std::unique_ptr<Event> make_event() override { return device_->make_event(); }

 private:
  bool holds(const Node& node) const {
    if (node.op->name == op_) return true;
    if (node.op->name != "fused") return false;
    for (const Node& each : node.bodies.front()->nodes())
      if (each.op->name == op_) return true;
    return false;
  }

  std::unique_ptr<Device> device_;
  std::string op_;
  Fault fault_;
  int threads_;
  bool rejects_ = false;
};

std::string check_with(const std::string& op, Fault fault,
                       std::vector<std::string>* lines = nullptr) {
  return selfcheck({.make_device = [&](int count) -> std::unique_ptr<Device> {
                      return std::make_unique<FaultyDevice>(count, op, fault);
                    },
                    .threads = 2,
                    .report =
                        [&](const std::string& line) {
                          if (lines != nullptr) lines->push_back(line);
                        }});
}

using Catch::Contains;

TEST_CASE("the self-check reports a wrong kernel with its case, the element and both values") {
  const std::string problem = check_with("tanh_grad", Fault::kOneElement);
  REQUIRE_THAT(problem, Catch::StartsWith("op tanh_grad: tanh_grad of f32[\"row=5 column=7\"], "));
  REQUIRE_THAT(problem, Contains("kernel tanh_grad of f32[") && Contains("element 34: got ") &&
                            Contains(", expected ") && Contains("times the tolerance"));
}

TEST_CASE("the self-check stops at an op without a kernel") {
  std::vector<std::string> lines;
  REQUIRE_THAT(
      check_with("transpose", Fault::kUnserved, &lines),
      Catch::StartsWith("op transpose: transpose of ") && Contains("no kernel for op 'transpose'"));
  REQUIRE(lines.size() == 2);  // The device, and the family that passed.
  REQUIRE_THAT(lines[0], Catch::StartsWith("checking cpu: 2 threads, "));
  REQUIRE_THAT(lines[1], Catch::StartsWith("elementwise "));
}

TEST_CASE("a kernel of a library that differs from the device's own fails the self-check") {
  REQUIRE_THAT(check_with("transpose", Fault::kMismatch),
               Catch::StartsWith("op transpose: transpose of ") &&
                   Contains("transpose: the library's differs"));
}

// The mismatch of the first case of `row` on a device with a faulty kernel of `op`.
std::string mismatch_of(const std::string& row, const std::string& op, Fault fault) {
  FaultyDevice device(2, op, fault);
  for (const OpCase& each : all_op_cases())
    if (each.op->name == row) return check_case(each, DType::kF32, device).mismatch;
  return "no such row";
}

TEST_CASE("a wrong kernel of each kind is named, in its own case and in cases of other ops") {
  for (const std::string op :
       {"rms_norm", "rms_norm_grad", "layer_norm_grad", "einsum", "attention", "attention_grad",
        "cached_attention", "grouped_product", "grouped_outer_product", "scatter_add", "gather",
        "reduce_sum", "adam_update", "cross_entropy", "cross_entropy_grad", "softmax", "rotary",
        "dropout", "random_uniform"})
    REQUIRE_THAT(mismatch_of(op, op, Fault::kOneElement), Contains(": kernel " + op + " of "));
  REQUIRE_THAT(mismatch_of("dropout", "random_uniform", Fault::kOneElement), Catch::Equals(""));
  REQUIRE_THAT(mismatch_of("softmax_grad", "softmax", Fault::kOneElement),
               Catch::StartsWith("softmax_grad of ") && Contains(": kernel softmax of "));
}

TEST_CASE("a NaN result is a mismatch") {
  REQUIRE_THAT(mismatch_of("softmax", "softmax", Fault::kNotANumber), Contains("got nan"));
}

TEST_CASE(
    "steps whose bits depend on the number of threads are detected with the first difference") {
  FaultyDevice one(1, "rms_norm_grad", Fault::kByThreads),
      two(2, "rms_norm_grad", Fault::kByThreads);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const StepBits expected = selfcheck_steps(one, dtype);
    REQUIRE(bit_difference(selfcheck_steps(one, dtype), expected) == "");
    REQUIRE_THAT(bit_difference(selfcheck_steps(two, dtype), expected),
                 Catch::StartsWith("the gradient norm of step 1: got "));
  }
}

}  // namespace
}  // namespace tessera
