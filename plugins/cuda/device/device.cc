// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/device.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/choices.h"
#include "plugins/cuda/device/graph.h"
#include "plugins/cuda/device/host_copies.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/pinned_buffer.h"
#include "plugins/cuda/device/progress.h"
#include "plugins/cuda/device/stream.h"

namespace tessera::cuda {
namespace {

// The clock at which the datasheets' peaks are reached. The driver's attribute is the highest
// clock, which a Hopper or Blackwell GPU does not hold while its tensor cores work (1.98 GHz for an
// H100).
double sustained_hertz(int capability, double highest) {
  if (capability >= 90 && capability < 100) return std::min(highest, 1.83e9);
  if (capability >= 100 && capability < 120) return std::min(highest, 1.85e9);
  return highest;
}

// Dense multiplications and additions of a multiprocessor in a clock cycle: bf16 on tensor cores
// with f32 sums, f32 on ordinary ones. From the datasheets' peaks, divided by multiprocessors and
// clock: A100 312 TFLOP/s / (108 · 1.41 GHz), H100 SXM 989 / (132 · 1.83), B200 2250 /
// (148 · 1.85), RTX 4090 165 / (128 · 2.52).
double operations_per_cycle(int capability, DType dtype) {
  if (dtype != DType::kBF16) return capability == 80 ? 128 : 256;
  if (capability == 80) return 2048;
  if (capability >= 90 && capability < 100) return 4096;
  return capability >= 100 && capability < 120 ? 8192 : 512;
}

// Estimated bytes that the driver allocates after the arena: CUDA graphs, and the stacks of
// kernels.
constexpr int64_t kRoomBeside = int64_t{256} << 20;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal) : held_(shared_context(ordinal)), context_(*held_) {}

  Context& context() { return context_; }
  std::string_view kind() const override { return "cuda"; }
  std::string description() const override {
    return fmt::format("cuda: GPU {}, {}, compute capability {}.{}{}", context_.ordinal(),
                       context_.name(), context_.compute_capability() / 10,
                       context_.compute_capability() % 10, description_of_libraries(context_));
  }
  double peak_flops(DType dtype) const override {
    const int capability = context_.compute_capability();
    return sustained_hertz(capability, 1e3 * context_.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)) *
           context_.multiprocessors() * operations_per_cycle(capability, dtype);
  }

  int64_t available_bytes() const override {
    context_.make_current();
    size_t free = 0, total = 0;
    context_.check(context_.driver().cuMemGetInfo(&free, &total), "asking for free memory");
    return std::max<int64_t>(static_cast<int64_t>(free) - kRoomBeside, 0);
  }
  DeviceAddress allocate(int64_t bytes) override {
    context_.make_current();
    CUdeviceptr memory = 0;
    const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    const CUresult result = context_.driver().cuMemAlloc(&memory, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return {};
    context_.check(result, "allocating memory");
    const std::unique_ptr<Stream> stream = make_stream(StreamUse::kCopy);
    context_.check(context_.driver().cuMemsetD8Async(memory, 0, size, native(*stream)),
                   "zeroing memory");
    stream->synchronize();
    return DeviceAddress(memory);
  }
  // After a fault of the GPU the driver refuses every call; destructors end up here, and the fault
  // has been reported already.
  void release(DeviceAddress memory, int64_t) override {
    if (!memory.is_null() && context_.can_destroy())
      context_.driver().cuMemFree(pointer_of(memory));
  }

  void map(DeviceAddress memory, int64_t bytes, HostAccess access, const UseBytes& use) override {
    context_.make_current();
    context_.part<HostCopies>().map(memory, bytes, access, use);
  }

  bool is_asynchronous() const override { return true; }
  std::shared_ptr<std::byte[]> host_memory(int64_t bytes) override {
    context_.make_current();
    const auto buffer = std::make_shared<PinnedBuffer>(context_, static_cast<size_t>(bytes));
    return {buffer, static_cast<std::byte*>(buffer->data())};
  }

  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    const KernelFactory factory = KernelRegistrar::find(*node.op, context_.compute_capability());
    if (factory == nullptr)
      fail("{}: the CUDA backend has no kernel for op '{}' [in {}]", node.site.text(),
           node.op->name, node.path.empty() ? "the step" : node.path);
    std::unique_ptr<Kernel> kernel = factory(graph, node, context_);
    note_implementation(static_cast<const CudaKernel&>(*kernel).implementation());
    return kernel;
  }
  bool has_kernel(const OpDef& op) const override {
    return KernelRegistrar::find(op, context_.compute_capability()) != nullptr;
  }

  std::string share_choices(const std::string& others) override {
    return context_.part<SharedChoices>().run->share(others);
  }

  void permit_nondeterminism() override { context_.permit_nondeterminism(); }
  void reject_mismatches() override { context_.reject_mismatches(); }

  std::unique_ptr<Stream> make_stream(StreamUse use) override {
    return make_cuda_stream(context_, use);
  }
  std::unique_ptr<Event> make_event() override { return make_cuda_event(context_); }

 private:
  std::shared_ptr<Context> held_;
  Context& context_;
};

}  // namespace

int first_gpu(int64_t count, int local_rank) {
  int shown = 0;
  check_cuda(load_driver().cuDeviceGetCount(&shown), "counting GPUs");
  const int64_t first = local_rank * count;
  if (shown == count || local_rank == 0) return 0;
  if (shown < first + count)
    fail(
        "--device=cuda: process {} of this machine needs GPUs {} to {}, but the driver shows {}; "
        "start fewer processes, use fewer --devices, or see CUDA_VISIBLE_DEVICES",
        local_rank, first, first + count - 1, shown);
  return static_cast<int>(first);
}

std::vector<std::unique_ptr<Device>> make_cuda_devices(int64_t count, int, int local_rank) {
  uses_graphs(), marks_progress();  // Their errors belong here, before anything is written.
  std::vector<std::unique_ptr<Device>> devices;
  const int first = first_gpu(count, local_rank);
  for (int64_t i = 0; i < count; ++i)
    devices.push_back(std::make_unique<CudaDevice>(first + static_cast<int>(i)));
  return devices;
}

Context& context_of(Device& device) { return static_cast<CudaDevice&>(device).context(); }

}  // namespace tessera::cuda
