// SPDX-License-Identifier: Apache-2.0
// The self-check passes on this machine, and finds a kernel that is wrong, whatever is wrong with
// it.
#include "tasks/selfcheck.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/cpu/device.h"
#include "core/base/error.h"
#include "core/graph/op.h"
#include "tasks/selfcheck_steps.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

enum class Fault {
  kOneElement,  // The last element of the first result is wrong.
  kNotANumber,  // It is NaN.
  kUnserved,    // There is no such kernel.
  kByThreads,   // It is wrong with more than one thread.
};

class FaultyKernel final : public Kernel {
 public:
  FaultyKernel(std::unique_ptr<Kernel> kernel, const Type& type, Fault fault)
      : kernel_(std::move(kernel)), type_(type), fault_(fault) {}
  int64_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return kernel_->may_overwrite(output, input);
  }
  void run(const LaunchArgs& args) override {
    kernel_->run(args);
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

// The CPU device, one of whose kernels is wrong.
class FaultyDevice final : public Device {
 public:
  FaultyDevice(int threads, std::string op, Fault fault)
      : device_(make_cpu_device(threads)), op_(std::move(op)), fault_(fault), threads_(threads) {}

  std::string_view kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description(); }
  double peak_flops(DType dtype) const override { return device_->peak_flops(dtype); }
  std::byte* allocate(int64_t bytes) override { return device_->allocate(bytes); }
  void release(std::byte* memory, int64_t bytes) override { device_->release(memory, bytes); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    std::unique_ptr<Kernel> kernel = device_->prepare(graph, node);
    if (!holds(node)) return kernel;
    if (fault_ == Fault::kUnserved) fail("no kernel for op '{}'", op_);
    if (fault_ == Fault::kByThreads && threads_ == 1) return kernel;
    return std::make_unique<FaultyKernel>(std::move(kernel), graph.type(node.outputs[0]), fault_);
  }
  bool has_kernel(std::string_view op) const override { return device_->has_kernel(op); }
  void write(std::byte* destination, std::span<const std::byte> source) override {
    device_->write(destination, source);
  }
  void read(std::span<std::byte> destination, const std::byte* source) override {
    device_->read(destination, source);
  }

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
};

std::string check_with(const std::string& op, Fault fault,
                       std::vector<std::string>* lines = nullptr, int threads = 2) {
  return selfcheck({.make_device = [&](int count) -> std::unique_ptr<Device> {
                      return std::make_unique<FaultyDevice>(count, op, fault);
                    },
                    .threads = threads,
                    .say =
                        [&](const std::string& line) {
                          if (lines != nullptr) lines->push_back(line);
                        }});
}

using Catch::Contains;

TEST_CASE("the self-check passes here, with a line for each family of ops") {
  std::vector<std::string> lines;
  REQUIRE(check_with("", Fault::kOneElement, &lines) == "");
  REQUIRE_THAT(lines.front(), Catch::StartsWith("checking cpu: 2 threads, "));
  for (const std::string family : {"elementwise", "layout", "reduction", "einsum", "gather", "norm",
                                   "softmax", "cross_entropy", "attention", "optimizer"}) {
    INFO(family);
    REQUIRE(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
              return line.starts_with(family + " ");
            }) == 1);
  }
  REQUIRE_THAT(lines[lines.size() - 2],
               Contains("training steps in bf16") && Contains("the same bits on 1 and 2 threads"));
  REQUIRE_THAT(lines.back(), Catch::StartsWith("all is right"));
}

TEST_CASE("the self-check names a wrong kernel, its case, the element and both values") {
  const std::string problem = check_with("tanh_grad", Fault::kOneElement);
  REQUIRE_THAT(problem, Catch::StartsWith("op tanh_grad: tanh_grad of f32[\"row=5 column=7\"], "));
  REQUIRE_THAT(problem, Contains("kernel tanh_grad of f32[") && Contains("element 34: got ") &&
                            Contains(", expected ") && Contains("times the tolerance"));
}

TEST_CASE("the self-check names the wrong kernel where another op's case meets it first") {
  // The first case that transposes is not one of the transposition's own.
  for (const std::string op : {"rms_norm_grad", "einsum", "attention", "attention_grad",
                               "scatter_add", "adam_update", "cross_entropy", "dropout"})
    REQUIRE_THAT(check_with(op, Fault::kOneElement), Contains("kernel " + op + " of "));
}

TEST_CASE("the self-check finds results that are not numbers, and ops without a kernel") {
  REQUIRE_THAT(check_with("softmax", Fault::kNotANumber),
               Contains("op softmax") && Contains("got nan"));
  REQUIRE_THAT(check_with("rotary", Fault::kUnserved),
               Catch::StartsWith("op rotary: rotary of ") && Contains("no kernel for op 'rotary'"));
}

TEST_CASE("steps whose bits depend on the number of threads are told apart, and by what") {
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
