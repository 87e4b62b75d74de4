// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/stream.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "core/backend/launch_failure.h"
#include "core/base/error.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/pinned_buffer.h"

namespace tessera::cuda {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class CudaEvent final : public Event {
 public:
  CudaEvent(Context& context, unsigned flags) : context_(context) {
    context_.make_current();
    context_.check(context_.driver().cuEventCreate(&event_, flags), "making an event");
  }
  ~CudaEvent() override {
    if (context_.driver().cuCtxSetCurrent(context_.handle()) == CUDA_SUCCESS)
      context_.driver().cuEventDestroy(event_);
  }
  CUevent get() const { return event_; }

 private:
  Context& context_;
  CUevent event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream(Context& context, StreamUse use)
      : context_(current(context)), progress_(context, sizeof(uint32_t)) {
    // Lower numbers are higher priorities; the driver clamps to what it has.
    const int priority = use == StreamUse::kCommunication ? -5 : 0;
    context_.check(driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority),
                   "making a stream");
    note_progress(0);
  }
  ~CudaStream() override {
    if (driver().cuCtxSetCurrent(context_.handle()) != CUDA_SUCCESS) return;
    driver().cuStreamSynchronize(stream_);  // The staging buffers are in use until then.
    driver().cuStreamDestroy(stream_);
  }

  void launch(Kernel& kernel, const LaunchArgs& args, LaunchTime* time) override {
    ++launches_;
    naming_launch([&] {
      context_.make_current();
      timed(time, [&] { static_cast<CudaKernel&>(kernel).enqueue(stream_, args); });
      context_.check(driver().cuStreamWriteValue32(
                         stream_, reinterpret_cast<CUdeviceptr>(progress_.data()),
                         static_cast<uint32_t>(launches_), CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
                     "recording the progress");
    });
  }
  void copy_from_host(DeviceAddress to, std::span<const std::byte> from) override {
    if (from.empty()) return;
    context_.make_current();
    void* const staged = stage(from);
    context_.check(driver().cuMemcpyHtoDAsync(pointer_of(to), staged, from.size(), stream_),
                   "copying to the GPU");
  }
  void copy_to_host(std::span<std::byte> to, DeviceAddress from) override {
    if (to.empty()) return;
    context_.make_current();
    context_.check(driver().cuMemcpyDtoHAsync(to.data(), pointer_of(from), to.size(), stream_),
                   "copying from the GPU");
  }
  void record(Event& event) override {
    context_.make_current();
    context_.check(driver().cuEventRecord(native(event), stream_), "recording an event");
  }
  void wait(Event& event, LaunchTime* time) override {
    context_.make_current();
    timed(time, [&] {
      context_.check(driver().cuStreamWaitEvent(stream_, native(event), 0), "waiting for an event");
    });
  }
  void synchronize() override {
    naming_launch([&] {
      context_.make_current();
      context_.check(driver().cuStreamSynchronize(stream_), "running the step");
    });
    launches_ = 0;
    note_progress(0);
    for (std::unique_ptr<PinnedBuffer>& buffer : staged_)
      if (buffer->bytes() <= kLongestKept) free_.push_back(std::move(buffer));
    staged_.clear();
    for (const Timing& timing : timings_) {
      timing.time->begin_ns = clock_ns(*timing.begin);
      timing.time->end_ns = clock_ns(*timing.end);
    }
    timings_.clear();
    base_.reset();
  }

  CUstream get() const { return stream_; }

 private:
  struct Timing {
    LaunchTime* time;
    std::unique_ptr<CudaEvent> begin, end;
  };

  static Context& current(Context& context) {
    context.make_current();
    return context;
  }
  const Driver& driver() const { return context_.driver(); }

  // After a fault every call of the driver returns its error, so the call that failed does not tell
  // which launch did. Each launch therefore writes its number to host memory, which a fault spares.
  // The stream is not waited for: after the timeout of a collective it may never end.
  template <typename Work>
  void naming_launch(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      const CUresult result = driver().cuStreamQuery(stream_);
      const int64_t done = *static_cast<const volatile uint32_t*>(progress_.data());
      if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)  // The last launch was refused.
        throw LaunchFailure(launches_ - 1, error.what());
      if (done == launches_) throw;
      throw LaunchFailure(done,
                          fmt::format("GPU {}: {}", context_.ordinal(), description_of(result)));
    }
  }
  void note_progress(uint32_t launches) {
    *static_cast<volatile uint32_t*>(progress_.data()) = launches;
  }

  // Buffers of batches are kept for later copies, since allocating page-locked memory is slow;
  // those of weights are not.
  static constexpr size_t kLongestKept = 16 << 20;
  void* stage(std::span<const std::byte> bytes) {
    auto fits = std::find_if(free_.begin(), free_.end(),
                             [&](const auto& buffer) { return buffer->bytes() >= bytes.size(); });
    if (fits == free_.end())
      fits = free_.insert(free_.end(),
                          std::make_unique<PinnedBuffer>(context_, std::bit_ceil(bytes.size())));
    const PinnedBuffer& buffer = *staged_.emplace_back(std::move(*fits));
    free_.erase(fits);
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    return buffer.data();
  }

  std::unique_ptr<CudaEvent> mark() {
    auto event = std::make_unique<CudaEvent>(context_, CU_EVENT_DEFAULT);
    record(*event);
    return event;
  }
  template <typename Work>
  void timed(LaunchTime* time, const Work& work) {
    if (time == nullptr) return work();
    if (!base_) {
      base_ = mark();
      context_.check(driver().cuEventSynchronize(base_->get()), "reading the GPU's clock");
      base_ns_ = now_ns();
    }
    std::unique_ptr<CudaEvent> begin = mark();
    work();
    timings_.push_back({time, std::move(begin), mark()});
  }
  // On the host's clock.
  int64_t clock_ns(const CudaEvent& event) const {
    float milliseconds = 0;
    context_.check(driver().cuEventElapsedTime(&milliseconds, base_->get(), event.get()),
                   "reading the GPU's clock");
    return base_ns_ + static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

  Context& context_;
  CUstream stream_ = nullptr;
  PinnedBuffer progress_;  // Launches since the last synchronize(): how many are done,
  int64_t launches_ = 0;   // and how many were enqueued.
  std::vector<std::unique_ptr<PinnedBuffer>> staged_;  // Since the last synchronize().
  std::vector<std::unique_ptr<PinnedBuffer>> free_;
  std::vector<Timing> timings_;
  std::unique_ptr<CudaEvent> base_;  // Of the timings: at base_ns_ of the host's clock.
  int64_t base_ns_ = 0;
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream(Context& context, StreamUse use) {
  return std::make_unique<CudaStream>(context, use);
}

std::unique_ptr<Event> make_cuda_event(Context& context) {
  return std::make_unique<CudaEvent>(context, CU_EVENT_DISABLE_TIMING);
}

CUstream native(Stream& stream) { return static_cast<CudaStream&>(stream).get(); }
CUevent native(Event& event) { return static_cast<CudaEvent&>(event).get(); }

}  // namespace tessera::cuda
