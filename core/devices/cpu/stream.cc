// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/stream.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera {
namespace {

// More operands than nearly all launches have, so that launching allocates nothing.
constexpr size_t kUsualOperands = 256;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Recordings are numbered from 1; they complete in order.
class HostEvent final : public Event {
 public:
  uint64_t begin_recording() {
    const std::lock_guard lock(mutex_);
    return ++recorded_;
  }
  uint64_t last_recording() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  bool has_happened(uint64_t recording) {
    const std::lock_guard lock(mutex_);
    return completed_ >= recording && !failure_;
  }
  void complete(uint64_t recording, const std::exception_ptr& failure) {
    {
      const std::lock_guard lock(mutex_);
      completed_ = std::max(completed_, recording);
      failure_ = failure;
    }
    changed_.notify_all();
  }
  // Throws the failure of the work before the event.
  void await(uint64_t recording) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return completed_ >= recording; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0, completed_ = 0;
  std::exception_ptr failure_;
};

// Runs kernels with the pointers of their operands.
class Launcher {
 public:
  explicit Launcher(std::function<std::byte*(DeviceAddress)> to_host)
      : to_host_(std::move(to_host)) {
    inputs_.reserve(kUsualOperands);
    outputs_.reserve(kUsualOperands);
  }

  std::byte* pointer(DeviceAddress address) const {
    return to_host_ ? to_host_(address) : pointer_to(address);
  }
  void run(Kernel& kernel, const LaunchArgs& args) {
    inputs_.clear();
    outputs_.clear();
    for (const DeviceAddress input : args.inputs) inputs_.push_back(pointer(input));
    for (const DeviceAddress output : args.outputs) outputs_.push_back(pointer(output));
    // The cast is safe: the kernel belongs to this device or its communicator.
    static_cast<HostKernel&>(kernel).run({inputs_, outputs_, pointer(args.scratch)});
  }

 private:
  std::function<std::byte*(DeviceAddress)> to_host_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
};

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Sets `time`, unless it is null, to the time at which `work` ran.
template <typename Work>
void timed(LaunchTime* time, const Work& work) {
  if (time == nullptr) return work();
  time->begin_ns = now_ns();
  work();
  time->end_ns = now_ns();
}

class InlineStream final : public Stream {
 public:
  void launch(Kernel& kernel, const LaunchArgs& args, LaunchTime* time) override {
    timed(time, [&] { launcher_.run(kernel, args); });
  }
  void copy_from_host(DeviceAddress to, std::span<const std::byte> from) override {
    copy_bytes(pointer_to(to), from.data(), from.size());
  }
  void copy_to_host(std::span<std::byte> to, DeviceAddress from) override {
    copy_bytes(to.data(), pointer_to(from), to.size());
  }
  void record(Event& event) override {
    auto& it = static_cast<HostEvent&>(event);
    it.complete(it.begin_recording(), nullptr);
  }
  void wait(Event& event, LaunchTime* time) override {
    auto& it = static_cast<HostEvent&>(event);
    timed(time, [&] { it.await(it.last_recording()); });
  }
  void synchronize() override {}
  void synchronize(Event& event) override { wait(event, nullptr); }

 private:
  Launcher launcher_{nullptr};
};

class ThreadStream final : public Stream {
 public:
  explicit ThreadStream(ThreadStreamOptions options)
      : before_each_(std::move(options.before_each)), launcher_(std::move(options.to_host)) {
    tasks_.reserve(kUsualOperands);
    thread_ = start_thread([this] { serve(); });
  }
  ~ThreadStream() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    added_.notify_all();
    thread_.join();
  }

  void launch(Kernel& kernel, const LaunchArgs& args, LaunchTime* time) override {
    add({.kernel = &kernel, .args = args, .time = time});
  }
  void copy_from_host(DeviceAddress to, std::span<const std::byte> from) override {
    add({.staged = {from.begin(), from.end()}, .memory = to});
  }
  void copy_to_host(std::span<std::byte> to, DeviceAddress from) override {
    add({.destination = to, .memory = from});
  }
  void record(Event& event) override {
    auto& it = static_cast<HostEvent&>(event);
    add({.recorded = &it, .recording = it.begin_recording()});
  }
  void wait(Event& event, LaunchTime* time) override {
    auto& it = static_cast<HostEvent&>(event);
    const uint64_t recording = it.last_recording();
    if (time == nullptr && it.has_happened(recording)) return;  // Do not wake the thread.
    add({.time = time, .awaited = &it, .recording = recording});
  }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    drained_.wait(lock, [&] { return done_ == tasks_.size(); });
    if (failure_) std::rethrow_exception(failure_);
    drop_done();
  }
  void synchronize(Event& event) override {
    auto& it = static_cast<HostEvent&>(event);
    it.await(it.last_recording());
  }
  void begin_run(Stream&) override {
    const std::lock_guard lock(mutex_);
    drop_done();
  }

 private:
  // One piece of work, the one whose members are set.
  struct Task {
    Kernel* kernel = nullptr;
    LaunchArgs args = {};
    LaunchTime* time = nullptr;
    HostEvent* awaited = nullptr;
    HostEvent* recorded = nullptr;
    uint64_t recording = 0;
    std::vector<std::byte> staged = {};     // Bytes to copy to the device's `memory`.
    std::span<std::byte> destination = {};  // Destination of a copy from `memory`.
    DeviceAddress memory = {};
  };

  void drop_done() {
    tasks_.erase(tasks_.begin(), tasks_.begin() + static_cast<ptrdiff_t>(done_));
    done_ = 0;
  }

  void add(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    added_.notify_one();
  }

  void run(const Task& task) {
    if (task.awaited == nullptr && before_each_) before_each_();
    timed(task.time, [&] {
      if (task.kernel != nullptr) {
        launcher_.run(*task.kernel, task.args);
      } else if (task.awaited != nullptr) {
        task.awaited->await(task.recording);
      } else if (!task.staged.empty()) {
        copy_bytes(launcher_.pointer(task.memory), task.staged.data(), task.staged.size());
      } else if (!task.destination.empty()) {
        copy_bytes(task.destination.data(), launcher_.pointer(task.memory),
                   task.destination.size());
      }
    });
  }

  // Runs a task unless one failed before. Events happen even after a failure and at the end of the
  // stream: others may wait for them.
  std::exception_ptr outcome_of(const Task& task, const std::exception_ptr& failure) {
    if (task.recorded != nullptr) {
      task.recorded->complete(task.recording, failure);
      return failure;
    }
    if (failure) return failure;
    try {
      run(task);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  void serve() {
    make_thread_prompt();
    const std::exception_ptr ended = std::make_exception_ptr(Error("the stream was ended"));
    std::unique_lock lock(mutex_);
    while (true) {
      added_.wait(lock, [&] { return leaving_ || done_ < tasks_.size(); });
      if (done_ == tasks_.size()) return;
      Task task = std::move(tasks_[done_]);  // The vector may grow while it runs.
      const std::exception_ptr before = leaving_ && !failure_ ? ended : failure_;
      lock.unlock();
      std::exception_ptr failure = outcome_of(task, before);
      lock.lock();
      failure_ = failure;
      if (++done_ == tasks_.size()) drained_.notify_all();
    }
  }

  std::function<void()> before_each_;
  Launcher launcher_;  // Used by the thread only.
  std::mutex mutex_;   // Guards the members below.
  std::condition_variable added_, drained_;
  std::vector<Task> tasks_;  // Tasks since the last synchronize() or begin_run().
  size_t done_ = 0;
  std::exception_ptr failure_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_inline_stream() { return std::make_unique<InlineStream>(); }

std::unique_ptr<Stream> make_thread_stream(ThreadStreamOptions options) {
  return std::make_unique<ThreadStream>(std::move(options));
}

std::unique_ptr<Event> make_host_event() { return std::make_unique<HostEvent>(); }

}  // namespace tessera
