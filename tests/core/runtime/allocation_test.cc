// SPDX-License-Identifier: Apache-2.0
// A step allocates no host memory: this program replaces malloc with a version that counts calls.
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "core/compile/autodiff/autodiff.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/optimizer.h"
#include "core/runtime/executor/executor.h"
#include "layers/fprop_scope.h"
#include "tests/support/catch.h"
#include "tests/support/reference_models.h"

// Sanitizers have their own malloc.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
std::atomic<bool> counting = false;
std::atomic<int64_t> allocations = 0;
std::atomic<size_t> largest = 0;

void count(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  allocations.fetch_add(1);
  size_t known = largest.load();
  while (known < bytes && !largest.compare_exchange_weak(known, bytes)) {
  }
}

// The number of allocations in `action`.
struct Allocated {
  int64_t number = 0;
  size_t largest = 0;
};
template <typename Action>
Allocated allocated_by(const Action& action) {
  allocations = 0;
  largest = 0;
  counting = true;
  action();
  counting = false;
  return {allocations, largest};
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t number, size_t bytes) {
  count(number * bytes);
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, size_t bytes) {
  count(bytes);
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  count(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace tessera {
namespace {

// A training step of a small Llama with Adam.
Graph training_step(DType compute) {
  LanguageModel::HParams p = small_llama();
  p.lm_tpl.as<TransformerLm::HParams>().dtypes = DTypePolicy{.compute = compute};
  const LanguageModel model(p);
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const std::vector<Tensor> parameters = parameter_inputs(model.parameters());
  Features features;
  for (const char* name : {"ids", "labels", "segment_ids", "segment_pos"})
    features.tensors[name] = input(
        std::string("batch/") + name, InputKind::kBatch,
        make_type(DType::kI32, {{"batch", SmallSizes::kBatch, {}}, {"seq", SmallSizes::kSeq, {}}}));
  const FpropScope scope(parameters, features);
  const ModelOutput result = model(features);
  const Tensor loss = result.loss.sum / result.loss.weight;
  output("loss", loss);
  const std::vector<Tensor> slopes = gradients(loss, parameters);

  const PhaseScope update(Phase::kUpdate);
  const Tensor one = constant(1.0, DType::kF32), yes = equal(one, one);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& path = model.parameters().parameters()[i].path;
    const Tensor m = input("m/" + path, InputKind::kState, parameters[i].type());
    const Tensor v = input("v/" + path, InputKind::kState, parameters[i].type());
    const AdamState next = adam_update({parameters[i], m, v}, slopes[i], one, one, one, yes, {});
    graph.add_update(path, next.parameter.id());
    graph.add_update("m/" + path, next.first_moment.id());
    graph.add_update("v/" + path, next.second_moment.id());
  }
  return graph;
}

// A device whose kernels do nothing.
class IdleKernel final : public HostKernel {
 public:
  void run(const HostArgs&) override {}
};
class IdleDevice final : public Device {
 public:
  std::string_view kind() const override { return "idle"; }
  std::string description() const override { return "idle"; }
  double peak_flops(DType) const override { return 1.0; }
  int64_t available_bytes() const override { return int64_t{1} << 30; }
  DeviceAddress allocate(int64_t bytes) override {
    return address_of(static_cast<std::byte*>(std::calloc(1, static_cast<size_t>(bytes))));
  }
  void release(DeviceAddress memory, int64_t) override { std::free(pointer_to(memory)); }
  std::unique_ptr<Kernel> prepare(const Graph&, const Node&) override {
    return std::make_unique<IdleKernel>();
  }
  bool has_kernel(const OpDef&) const override { return true; }
  std::unique_ptr<Stream> make_stream(StreamUse) override { return make_inline_stream(); }
  std::unique_ptr<Event> make_event() override { return make_host_event(); }
};

Allocated allocated_by_a_step(Device& device, DType compute) {
  Executor executor(device);
  const int program = executor.add_program(training_step(compute), {});
  executor.allocate();
  return allocated_by([&] { executor.run(program); });
}

TEST_CASE("the allocation counter counts malloc and new") {
  static void* volatile memory = nullptr;  // Volatile prevents removal of the allocations.
  const Allocated allocated = allocated_by([] {
    memory = std::malloc(8);
    std::free(memory);
    memory = ::operator new(32);
    ::operator delete(memory);
  });
  REQUIRE(allocated.number == 2);
  REQUIRE(allocated.largest == 32);
}

TEST_CASE("the executor allocates nothing in a step") {
  IdleDevice device;
  REQUIRE(allocated_by_a_step(device, DType::kF32).number == 0);
}

TEST_CASE("the kernels of a step allocate nothing") {
  const auto device = make_cpu_device(2);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    INFO(dtype_name(compute));
    REQUIRE(allocated_by_a_step(*device, compute).number == 0);
  }
}

}  // namespace
}  // namespace tessera

#endif
