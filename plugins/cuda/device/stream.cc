// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/stream.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/devices/device.h"
#include "plugins/cuda/device/graph.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/launch_range.h"
#include "plugins/cuda/device/pinned_buffer.h"
#include "plugins/cuda/device/progress.h"

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
    if (context_.can_destroy()) context_.driver().cuEventDestroy(event_);
  }
  CUevent get() const { return event_; }

  // State of the stream when it last recorded the event: its run, and the buffers it had staged.
  uint32_t run = 0;
  int64_t staged = 0;

 private:
  Context& context_;
  CUevent event_ = nullptr;
};

// How many launches of a captured compute stream share a mark of progress. A mark is a node of its
// own between two kernels. On an H100 marks cost less than the noise: 132.4 ms with and 133.4 ms
// without them for a step of 400 launches. With one after each 16th, an error names 16 launches.
// Collectives are few and long, so each has its mark.
constexpr int64_t kLaunchesPerMark = 16;

// How long a destroyed stream waits for its work. Only a failed step leaves work to wait for.
constexpr std::chrono::seconds kLongestEnd(3);

class CudaStream final : public Stream {
 public:
  CudaStream(Context& context, StreamUse use)
      : context_(current(context)),
        captured_per_mark_(use == StreamUse::kCommunication ? 1 : kLaunchesPerMark),
        progress_(context, kWords * sizeof(uint32_t)) {
    // Lower numbers are higher priorities; the driver clamps to what it has.
    const int priority = use == StreamUse::kCommunication ? -5 : 0;
    context_.check(driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority),
                   "making a stream");
    word(kLaunches) = 0;
    word(kRun) = 0;
  }
  ~CudaStream() override {
    if (!context_.can_destroy()) return;
    if (ends_soon())
      driver().cuStreamDestroy(stream_);
    else
      context_.give_up();
  }

  void launch(Kernel& kernel, const LaunchArgs& args, LaunchTime* time) override {
    auto& it = static_cast<CudaKernel&>(kernel);
    try {
      checked([&] {
        context_.make_current();
        const bool captured = is_captured(context_, stream_);
        if (captured && !it.why_not_captured().empty()) fail("{}", it.why_not_captured());
        ++launches_;
        const LaunchRange range(args.node);
        timed(time, [&] { it.enqueue(stream_, args); });
        if (!captured || launches_ % captured_per_mark_ == 0) mark_progress();
      });
    } catch (const LaunchFailure&) {
      throw;
    } catch (const Error& error) {
      throw LaunchRefused(error.what());
    }
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
    const auto copy = [&] {
      context_.make_current();
      context_.check(driver().cuMemcpyDtoHAsync(to.data(), pointer_of(from), to.size(), stream_),
                     "copying from the GPU");
    };
    if (launches_ == 0) return copy();  // If it fails, that is not a launch's failure.
    checked(copy);
  }
  void record(Event& event) override {
    checked([&] {
      context_.make_current();
      context_.check(driver().cuEventRecord(native(event), stream_), "recording an event");
    });
    auto& it = static_cast<CudaEvent&>(event);
    it.run = runs_;
    it.staged = freed_ + std::ssize(staged_);
  }
  void wait(Event& event, LaunchTime* time) override {
    checked([&] {
      context_.make_current();
      timed(time, [&] {
        context_.check(driver().cuStreamWaitEvent(stream_, native(event), 0),
                       "waiting for an event");
      });
    });
  }
  void synchronize() override {
    checked([&] {
      context_.make_current();
      context_.check(driver().cuStreamSynchronize(stream_), "running the step");
    });
    launches_ = 0;
    per_mark_ = 1;
    word(kLaunches) = 0;
    free_staged(freed_ + std::ssize(staged_));
    for (const Timing& timing : timings_) {
      timing.time->begin_ns = clock_ns(*timing.begin);
      timing.time->end_ns = clock_ns(*timing.end);
    }
    timings_.clear();
    base_.reset();
  }

  void synchronize(Event& event) override {
    const auto& it = static_cast<CudaEvent&>(event);
    try {
      checked([&] {
        context_.make_current();
        context_.check(driver().cuEventSynchronize(it.get()), "running the step");
      });
    } catch (const Error&) {
      // After a fault the driver says so of events before it, too.
      if (word(kRun) <= it.run) throw;
    }
    free_staged(it.staged);
  }
  void begin_run(Stream& order) override {
    launches_ = 0;
    per_mark_ = 1;
    ++runs_;
    checked([&] {
      context_.make_current();
      write_mark(context_, native(order), progress_, kRun, runs_);
      write_mark(context_, native(order), progress_, kLaunches, 0);
    });
  }

  std::unique_ptr<Kernel> capture(const std::function<void()>& enqueue) override {
    if (!uses_graphs()) return nullptr;
    CHECK(launches_ == 0, "{} launches were not waited for", launches_);
    try {
      context_.make_current();
      auto graph = std::make_unique<ExecutableGraph>(context_, stream_, enqueue);
      return std::make_unique<Replay>(*this, std::move(graph), std::exchange(launches_, 0));
    } catch (const Error& error) {
      launches_ = 0;
      throw_if_failed();
      note_no_graph(error.what());  // Steps can do without.
      return nullptr;
    }
  }
  LaunchProgress progress() const override {
    return {.done = word(kLaunches), .unknown = marks_progress() ? per_mark_ : launches_};
  }

  CUstream get() const { return stream_; }

 private:
  // What a stream has captured, as a kernel of this stream.
  class Replay final : public CudaKernel {
   public:
    Replay(CudaStream& stream, std::unique_ptr<ExecutableGraph> graph, int64_t launches)
        : stream_(stream), graph_(std::move(graph)), launches_(launches) {}
    void enqueue(CUstream stream, const LaunchArgs&) override {
      stream_.launches_ += launches_ - 1;
      stream_.per_mark_ = stream_.captured_per_mark_;
      graph_->launch(stream);
    }

   private:
    CudaStream& stream_;
    std::unique_ptr<ExecutableGraph> graph_;
    int64_t launches_;
  };

  struct Timing {
    LaunchTime* time;
    std::unique_ptr<CudaEvent> begin, end;
  };

  static Context& current(Context& context) {
    context.make_current();
    return context;
  }
  const Driver& driver() const { return context_.driver(); }

  // The staging buffers are in use until the stream's work is done. After an error it may never be.
  bool ends_soon() const {
    const auto deadline = std::chrono::steady_clock::now() + kLongestEnd;
    while (driver().cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }

  // After a fault of the GPU every call of the driver returns its error. The stream is not waited
  // for: after the timeout of a collective it may never end.
  void throw_if_failed() const {
    if (is_captured(context_, stream_)) return;  // A query would end the capture.
    const CUresult result = driver().cuStreamQuery(stream_);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return;
    std::string where;
    if (per_mark_ > 1)
      where = fmt::format(" in a CUDA graph; the same command with {}=off names the launch",
                          kGraphVariable);
    throw LaunchFailure(
        fmt::format("GPU {}: {}{}", context_.ordinal(), description_of(result), where));
  }
  template <typename Work>
  void checked(const Work& work) const {
    try {
      work();
    } catch (const Error&) {
      throw_if_failed();
      throw;
    }
  }
  // What the stream writes to host memory, which a fault of the GPU spares: the number of each
  // launch when it is done, and that of each run when it begins.
  enum Word { kLaunches, kRun, kWords };
  volatile uint32_t& word(Word which) const {
    return static_cast<volatile uint32_t*>(progress_.data())[which];
  }
  void mark_progress() {
    write_mark(context_, stream_, progress_, kLaunches, static_cast<uint32_t>(launches_));
  }

  // Buffers of batches are kept for later copies, since allocating page-locked memory is slow;
  // those of weights are not.
  static constexpr size_t kLongestKept = 16 << 20;
  void* stage(std::span<const std::byte> bytes) {
    auto fits = std::find_if(free_.begin(), free_.end(),
                             [&](const auto& buffer) { return buffer->bytes() >= bytes.size(); });
    const size_t size = bytes.size() <= kLongestKept ? std::bit_ceil(bytes.size()) : bytes.size();
    if (fits == free_.end())
      fits = free_.insert(free_.end(), std::make_unique<PinnedBuffer>(context_, size));
    const PinnedBuffer& buffer = *staged_.emplace_back(std::move(*fits));
    free_.erase(fits);
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    return buffer.data();
  }
  // The copies from the first `count` buffers that were ever staged are done.
  void free_staged(int64_t count) {
    const auto end = staged_.begin() + std::max<int64_t>(count - freed_, 0);
    for (auto buffer = staged_.begin(); buffer != end; ++buffer)
      if ((*buffer)->bytes() <= kLongestKept) free_.push_back(std::move(*buffer));
    staged_.erase(staged_.begin(), end);
    freed_ = std::max(freed_, count);
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
  const int64_t captured_per_mark_;  // Launches per mark of progress in a graph,
  int64_t per_mark_ = 1;             // and in what was enqueued since begin_run().
  PinnedBuffer progress_;
  int64_t launches_ = 0;  // Launches enqueued or captured since begin_run() or synchronize().
  uint32_t runs_ = 0;     // Runs begun.
  std::vector<std::unique_ptr<PinnedBuffer>> staged_;  // Copies from them may be under way.
  int64_t freed_ = 0;                                  // How many were staged and are free again.
  std::vector<std::unique_ptr<PinnedBuffer>> free_;
  std::vector<Timing> timings_;
  std::unique_ptr<CudaEvent> base_;  // Base of the timings: at base_ns_ of the host's clock.
  int64_t base_ns_ = 0;
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream(Context& context, StreamUse use) {
  return std::make_unique<CudaStream>(context, use);
}

std::unique_ptr<Event> make_cuda_event(Context& context) {
  // The host sleeps while it waits for a step; otherwise it keeps a core busy for each GPU.
  return std::make_unique<CudaEvent>(context, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
}

CUstream native(Stream& stream) { return static_cast<CudaStream&>(stream).get(); }
CUevent native(Event& event) { return static_cast<CudaEvent&>(event).get(); }

}  // namespace tessera::cuda
