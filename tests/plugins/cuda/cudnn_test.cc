// SPDX-License-Identifier: Apache-2.0
// Tests attention by cuDNN, with a stand-in that executes the graphs on the host: the graphs
// compute attention and its gradient, and operands and scratch memory reach the library.
// cudnn_plans_test.cc tests whether NVIDIA's library supports these graphs.
#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/ops/attention.h"
#include "plugins/cuda/attention/attention_choice.h"
#include "plugins/cuda/attention/cudnn_attention.h"
#include "plugins/cuda/device/device.h"
#include "tests/plugins/cuda/fake_cudnn.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/attention_trial.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

const std::string kFakeLibrary = TESSERA_BINARY_DIR "/lib/virtual_gpu/fake_cudnn.so";

// The stand-in, for devices that are made during its lifetime.
class FakeCudnn {
 public:
  explicit FakeCudnn(const std::string& setting = "cudnn", const FakeCudnnBehaviour& behaviour = {})
      : setting_(kAttentionVariable, setting) {
    void* const handle = ::dlopen(kFakeLibrary.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != nullptr);
    set_ = reinterpret_cast<decltype(&fake_cudnn_set)>(::dlsym(handle, "fake_cudnn_set"));
    counts_ = reinterpret_cast<decltype(&fake_cudnn_counts)>(::dlsym(handle, "fake_cudnn_counts"));
    set_(&behaviour);
    counts_();
  }
  ~FakeCudnn() {
    const FakeCudnnBehaviour usual;
    set_(&usual);
  }
  FakeCudnnCounts counts() const { return counts_(); }

 private:
  ScopedVariable library_{kCudnnVariable, kFakeLibrary};
  ScopedVariable setting_;
  decltype(&fake_cudnn_set) set_;
  decltype(&fake_cudnn_counts) counts_;
};

// Compares bf16 attention and its gradient with the decomposition.
std::string gpu_mismatch(const AttentionSizes& sizes, const AttentionOptions& options,
                         KernelCheck check = {}, bool deterministic = true) {
  const TestDevices devices;
  if (!deterministic) devices.gpu->permit_nondeterminism();
  check.device = devices.gpu.get();
  check.tolerance_bf16 = 2e-2;
  Trial trial({}, attention_types(sizes, "bf16"));
  const std::vector<Tensor>& in = trial.inputs();
  attention(in[0], in[1], in[2], options);
  const Node node(trial.graph().nodes().back());
  traced_gradient(trial.graph(), node);
  return kernel_mismatch(trial.graph(), check);
}

// Returns the error of a device that makes an attention kernel.
std::string refusal(Device& gpu) {
  Trial trial({}, attention_types({1, 8, 8, 2, 1, 8}, "bf16"));
  const std::vector<Tensor>& in = trial.inputs();
  attention(in[0], in[1], in[2], {});
  return error_of([&] { gpu.prepare(trial.graph(), trial.graph().nodes().back()); });
}
std::string refusal() { return refusal(*TestDevices().gpu); }

TEST_CASE("attention by cuDNN's graphs agrees with its decomposition") {
  const bool deterministic = GENERATE(true, false);
  const FakeCudnn fake;
  const auto sizes =
      GENERATE(AttentionSizes{2, 17, 17, 4, 2, 8}, AttentionSizes{1, 12, 12, 3, 3, 24},
               AttentionSizes{2, 9, 20, 2, 1, 16}, AttentionSizes{1, 20, 9, 2, 2, 8});
  const bool causal = GENERATE(false, true);
  const double cap = GENERATE(0.0, 2.0);
  CAPTURE(deterministic, sizes.queries, sizes.keys, sizes.heads, sizes.head_dim, causal, cap);
  const AttentionOptions options{.mask = causal ? AttentionMask::kCausal : AttentionMask::kFull,
                                 .scale = 0.4,
                                 .logit_cap = cap};
  REQUIRE(gpu_mismatch(sizes, options, {}, deterministic) == "");
  const FakeCudnnCounts counts = fake.counts();
  REQUIRE(counts.plans == 2);
  REQUIRE(counts.runs >= 2);
  REQUIRE(counts.refused == 0);
}

TEST_CASE("attention that cuDNN does not compute runs on our own kernels") {
  const FakeCudnn fake;
  // Operands at any address.
  REQUIRE(gpu_mismatch({1, 8, 8, 2, 1, 8}, {.scale = 0.4}, {.offset = 1}) == "");
  REQUIRE(fake.counts().runs == 0);
  // Rows of 24 bytes.
  REQUIRE(gpu_mismatch({1, 8, 8, 2, 1, 12}, {.scale = 0.4}) == "");
  // f32, and packed rows.
  const TestDevices devices;
  const KernelCheck check{.tolerance_bf16 = 2e-2, .max_integer = 3, .device = devices.gpu.get()};
  REQUIRE(attention_mismatch({1, 8, 8, 2, 1, 8}, "f32", {.scale = 0.4}, false, check) == "");
  REQUIRE(attention_mismatch({1, 8, 8, 2, 1, 8}, "bf16", {.scale = 0.4}, true, check) == "");
  const FakeCudnnCounts counts = fake.counts();
  REQUIRE(counts.plans == 0);
  REQUIRE(counts.refused == 0);
}

TEST_CASE("a graph that the library does not support runs on our own kernels") {
  const FakeCudnn fake("cudnn", {.no_plans = true});
  REQUIRE(gpu_mismatch({1, 8, 8, 2, 1, 8}, {.scale = 0.4}) == "");
  REQUIRE(fake.counts().runs == 0);
}

TEST_CASE("from Blackwell on, a deterministic gradient runs on our own kernels") {
  const ScopedVariable capability("TESSERA_VIRTUAL_GPU_CAPABILITY", "100");
  for (const bool deterministic : {true, false}) {
    const FakeCudnn fake;
    REQUIRE(gpu_mismatch({1, 8, 8, 2, 1, 8}, {.scale = 0.4}, {}, deterministic) == "");
    REQUIRE(fake.counts().plans == (deterministic ? 1 : 2));
  }
}

TEST_CASE("kernels that the library calls nondeterministic run only where that is permitted") {
  for (const bool deterministic : {true, false}) {
    const FakeCudnn fake("cudnn", {.nondeterministic = true});
    REQUIRE(gpu_mismatch({1, 8, 8, 2, 1, 8}, {.scale = 0.4}, {}, deterministic) == "");
    const FakeCudnnCounts counts = fake.counts();
    REQUIRE(counts.plans == (deterministic ? 0 : 1));  // The gradient's plan.
    REQUIRE(counts.refused == 0);
  }
}

TEST_CASE(
    "by default cuDNN computes attention where it agrees with our own kernels and is faster") {
  const auto counts_with = [](const FakeCudnnBehaviour& behaviour) {
    const FakeCudnn fake("", behaviour);
    REQUIRE(gpu_mismatch({2, 8, 8, 2, 1, 8}, {.scale = 0.4}) == "");
    return fake.counts();
  };
  const FakeCudnnCounts right = counts_with({});
  REQUIRE(right.plans == 2);
  REQUIRE(right.runs > counts_with({.is_slow = true}).runs);  // Tried, and not used.
  REQUIRE(counts_with({.wrong_results = true}).runs == 2);    // Compared, and not timed or used.
}

TEST_CASE("wrong attention of cuDNN is an error where mismatches are rejected") {
  const FakeCudnn fake("", {.wrong_results = true});
  const TestDevices devices;
  devices.gpu->reject_mismatches();
  REQUIRE_THAT(refusal(*devices.gpu),
               Catch::StartsWith("attention: cuDNN's ") &&
                   Catch::EndsWith("; TESSERA_CUDA_ATTENTION=own does without cuDNN"));
}

TEST_CASE("plans are made once for each shape of a GPU") {
  const FakeCudnn fake;
  const TestDevices devices;
  Trial trial({}, attention_types({1, 8, 8, 2, 1, 8}, "bf16"));
  const std::vector<Tensor>& in = trial.inputs();
  const auto prepare = [&](double scale) {
    attention(in[0], in[1], in[2], {.scale = scale});
    const std::unique_ptr<Kernel> kernel =
        devices.gpu->prepare(trial.graph(), Node(trial.graph().nodes().back()));
    REQUIRE(kernel->scratch_bytes() >= 1000);  // The stand-in's workspace.
    return fake.counts().plans;
  };
  REQUIRE(prepare(1.0) == 1);
  REQUIRE(prepare(1.0) == 0);
  REQUIRE(prepare(2.0) == 1);
}

TEST_CASE("TESSERA_CUDA_ATTENTION=cudnn is refused where cuDNN cannot be used") {
  {
    const ScopedVariable setting(kAttentionVariable, "cudnn");
    REQUIRE(refusal() ==
            "TESSERA_CUDA_ATTENTION=cudnn: TESSERA_CUDA_DRIVER names another driver, which "
            "NVIDIA's libraries do not use; use TESSERA_CUDA_ATTENTION=own");
    const ScopedVariable library(kCudnnVariable, "/nowhere/libcudnn.so.9");
    REQUIRE_THAT(refusal(), Catch::Contains("TESSERA_CUDA_ATTENTION=cudnn: no cuDNN: /nowhere"));
  }
  {
    const FakeCudnn fake("cudnn", {.no_handle = true});
    REQUIRE_THAT(refusal(), Catch::Contains("cuDNN 9.19.0 cannot use this GPU: "
                                            "CUDNN_STATUS_NOT_INITIALIZED"));
  }
  const FakeCudnn fake;
  const ScopedVariable old("TESSERA_VIRTUAL_GPU_CAPABILITY", "80");
  REQUIRE_THAT(refusal(),
               Catch::Contains("has compute capability 8.0, and cuDNN is used from 9.0 on"));
}

TEST_CASE("unknown words in TESSERA_CUDA_ATTENTION are refused") {
  const ScopedVariable setting(kAttentionVariable, "cuddn");
  REQUIRE(error_of([] { attention_setting(); }) ==
          "TESSERA_CUDA_ATTENTION: unknown word 'cuddn'; did you mean 'cudnn'?; expected own, "
          "cudnn, separated by commas");
}

TEST_CASE("the device's description names the library that computes attention") {
  const auto description = [] { return TestDevices().gpu->description(); };
  {
    const ScopedVariable setting(kAttentionVariable, "");
    REQUIRE_THAT(description(), Catch::Contains(", attention by own kernels"));
  }
  const FakeCudnn fake("cudnn");
  REQUIRE_THAT(description(), Catch::Contains(", attention by cuDNN 9.19.0 where it can be"));
}

}  // namespace
}  // namespace tessera::cuda
