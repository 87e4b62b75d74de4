// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/timing.h"

#include <algorithm>
#include <limits>

#include "plugins/cuda/device/stream.h"

namespace tessera::cuda {
namespace {

constexpr int kRepetitions = 3;

class TimingEvent {
 public:
  explicit TimingEvent(Context& context) : context_(context) {
    context.check(context.driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "making an event");
  }
  ~TimingEvent() { context_.driver().cuEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;

  void record(CUstream stream) const {
    context_.check(context_.driver().cuEventRecord(event_, stream), "timing");
  }
  float milliseconds_since(const TimingEvent& begin) const {
    context_.check(context_.driver().cuEventSynchronize(event_), "timing");
    float milliseconds = 0;
    context_.check(context_.driver().cuEventElapsedTime(&milliseconds, begin.event_, event_),
                   "timing");
    return milliseconds;
  }

 private:
  Context& context_;
  CUevent event_ = nullptr;
};

}  // namespace

TrialMemory::~TrialMemory() {
  for (const CUdeviceptr each : memory_) context_.driver().cuMemFree(each);
}

CUdeviceptr TrialMemory::allocate(int64_t bytes) {
  CUdeviceptr address = 0;
  const CUresult result =
      context_.driver().cuMemAlloc(&address, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  complete_ &= result == CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return 0;
  memory_.push_back(address);
  return address;
}

WorkTimer::WorkTimer(Context& context)
    : context_(context),
      stream_(make_cuda_stream(context, StreamUse::kCompute)),
      memory_(context),
      cold_bytes_(context.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)),
      cold_(memory_.allocate(cold_bytes_)) {}

CUstream WorkTimer::stream() const { return native(*stream_); }

std::optional<float> WorkTimer::least_time(const std::function<bool()>& work) const {
  if (!work()) return std::nullopt;
  const TimingEvent begin(context_), end(context_);
  float least = std::numeric_limits<float>::max();
  for (int i = 0; i < kRepetitions; ++i) {
    context_.check(context_.driver().cuMemsetD8Async(cold_, 0, cold_bytes_, stream()), "timing");
    begin.record(stream());
    if (!work()) return std::nullopt;
    end.record(stream());
    least = std::min(least, end.milliseconds_since(begin));
  }
  return least;
}

}  // namespace tessera::cuda
