// SPDX-License-Identifier: Apache-2.0
// The device interface: memory, prepared kernels, and streams of launches and copies, after CUDA's
// model. It sees graphs of *local* types (after lowering); it knows nothing of passes, meshes or
// training.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/graph/graph.h"

namespace tessera {

// An address in a device's memory (CUDA: a CUdeviceptr). It is not a pointer: the host reads and
// writes a device's memory only by copies.
class DeviceAddress {
 public:
  constexpr DeviceAddress() = default;  // Null.
  constexpr explicit DeviceAddress(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr bool is_null() const { return value_ == 0; }
  constexpr DeviceAddress operator+(int64_t bytes) const {
    return DeviceAddress(value_ + static_cast<uint64_t>(bytes));
  }
  constexpr auto operator<=>(const DeviceAddress&) const = default;

 private:
  uint64_t value_ = 0;
};

// Errors of launches on devices that run them after they were enqueued.

// The launch that is being enqueued cannot be done. Those before it are not affected.
struct LaunchRefused : Error {
  using Error::Error;
};

// A launch that was enqueued before has failed, perhaps one of another stream of the device.
// Stream::progress() tells which launches it may be.
struct LaunchFailure : Error {
  using Error::Error;
};

// The operands of one launch, in the node's order. Buffers are row-major, 64-byte aligned unless
// they are views at an offset (then aligned to the element).
struct LaunchArgs {
  std::span<const DeviceAddress> inputs;
  std::span<const DeviceAddress> outputs;
  DeviceAddress scratch;       // scratch_bytes() bytes, 64-byte aligned.
  const Node* node = nullptr;  // For profilers; null for a kernel that Stream::capture() returned.
};

// A prepared node: shapes resolved, library primitives created. Each backend derives kernels that
// its own streams can run. Running allocates nothing and may be repeated.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }
  // Returns whether output `output` may lie in the buffer of input `input` (same bytes), each
  // element being read before it is written.
  virtual bool may_overwrite(int64_t output, int64_t input) const {
    static_cast<void>(output), static_cast<void>(input);
    return false;
  }
};

// A point in a stream that other streams can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

// Time at which a launch ran, or duration of a wait; nanoseconds of the host's steady clock.
struct LaunchTime {
  int64_t begin_ns = 0, end_ns = 0;
};

// Known progress of a stream.
struct LaunchProgress {
  int64_t done = 0;     // Launches since begin_run() or synchronize() that are done.
  int64_t unknown = 1;  // If one has failed, it is one of the next `unknown`.
};

// A queue of work on a device, done in order; several streams run concurrently. A call may return
// before its work is done. Objects that it refers to must live, unchanged, until synchronize()
// returns. If a launch fails, later work is not done. One thread at a time.
class Stream {
 public:
  // Stops before the next launch; does not wait for the remaining work.
  virtual ~Stream() = default;
  // Runs a kernel that this stream's device, or its communicator, has prepared. `time` may be null.
  virtual void launch(Kernel& kernel, const LaunchArgs& args, LaunchTime* time = nullptr) = 0;
  // Copies from the host; the caller may change `from` as soon as the call returns.
  virtual void copy_from_host(DeviceAddress to, std::span<const std::byte> from) = 0;
  virtual void copy_to_host(std::span<std::byte> to, DeviceAddress from) = 0;

  // Records an event, which happens when the work so far is done, or has failed. May be repeated.
  virtual void record(Event& event) = 0;
  // Makes later work wait for the event as last recorded; no wait if it never was. Fails if the
  // work before the event failed.
  virtual void wait(Event& event, LaunchTime* time = nullptr) = 0;
  // Returns when the work so far is done. Throws the first failure, now and ever after.
  virtual void synchronize() = 0;

  // Records what `enqueue` requests from this stream, and from streams that wait for it and that it
  // waits for again, without doing it. A launch of the returned kernel on this stream, without
  // operands, does all of it; it counts as all of its launches. Null if the device runs work one by
  // one only, or cannot record this work, which it then notes on standard error. Call it right
  // after synchronize().
  virtual std::unique_ptr<Kernel> capture(const std::function<void()>& enqueue) {
    static_cast<void>(enqueue);
    return nullptr;
  }
  // Returns the progress after a LaunchFailure of any stream of the device.
  virtual LaunchProgress progress() const { return {}; }

  // Functions for several runs of programs enqueued at a time:

  // Begins the next run. progress() counts the launches of this stream from 0 as soon as `order`,
  // which is this stream or another, has done all that was enqueued in it before this call.
  virtual void begin_run(Stream& order) { static_cast<void>(order); }
  // Waits for the event as last recorded in this stream. Throws the failure of a launch of its run
  // or of an earlier one, but not of a later run.
  virtual void synchronize(Event& event) = 0;
};

// The use of a stream. A device may give the streams of one kind their own priority or thread.
enum class StreamUse { kCompute, kCommunication, kCopy };

enum class HostAccess {
  kRead,
  kWrite,  // All bytes are written; old values are not read.
  kUpdate,
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view kind() const = 0;         // "cpu"
  virtual std::string description() const = 0;       // "cpu: 2 threads, avx512 on AMD EPYC"
  virtual double peak_flops(DType dtype) const = 0;  // Rate of arithmetic in registers only.

  // Returns the bytes that can be allocated, without those other devices of this process may take.
  virtual int64_t available_bytes() const = 0;
  // Allocates zeroed memory for the one arena, aligned to at least 64 bytes; null if there is not
  // enough. Not null for 0 bytes, the arena of a program without operands.
  virtual DeviceAddress allocate(int64_t bytes) = 0;
  virtual void release(DeviceAddress memory, int64_t bytes) = 0;

  // Makes a kernel for a node of a lowered graph. Error naming the op if this backend has none.
  virtual std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) = 0;
  virtual bool has_kernel(const OpDef& op) const = 0;
  // Returns, as text, the kernels that devices of this kind in this process have chosen by trials,
  // whose outcome may differ elsewhere; "" if they make none. From now on the devices use the
  // choices in `others`, such a text.
  virtual std::string share_choices(const std::string& others) { return others; }
  // Lets prepare() choose, from now on, kernels whose bits differ from run to run.
  virtual void permit_nondeterminism() {}
  // Makes prepare() throw, from now on, where a library's kernel differs from the device's own,
  // which it runs otherwise.
  virtual void reject_mismatches() {}

  virtual std::unique_ptr<Stream> make_stream(StreamUse use) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  // Calls `use` with `bytes` bytes of memory as the host sees them: a copy, which is written back
  // if `access` says so. A device whose memory the host can address passes that memory itself. No
  // launch may write these bytes during the call. Any thread may call it.
  using UseBytes = std::function<void(std::span<std::byte>)>;
  virtual void map(DeviceAddress memory, int64_t bytes, HostAccess access, const UseBytes& use) {
    const auto size = static_cast<size_t>(bytes);
    const auto copy = std::make_unique_for_overwrite<std::byte[]>(size);
    const std::span<std::byte> host(copy.get(), size);
    const std::unique_ptr<Stream> stream = make_stream(StreamUse::kCopy);
    if (access != HostAccess::kWrite) {
      stream->copy_to_host(host, memory);
      stream->synchronize();
    }
    use(host);
    if (access == HostAccess::kRead) return;
    stream->copy_from_host(memory, host);
    stream->synchronize();
  }

  // Returns whether streams run concurrently with the host's thread, which may be ahead of them.
  virtual bool is_asynchronous() const { return false; }
  // Returns host memory to which copy_to_host() copies without blocking the host's thread.
  virtual std::shared_ptr<std::byte[]> host_memory(int64_t bytes) {
    return std::make_shared<std::byte[]>(static_cast<size_t>(bytes));
  }
};

// Part of a device's memory.
struct DeviceBuffer {
  Device* device = nullptr;
  DeviceAddress address;
  int64_t bytes = 0;

  void map(HostAccess access, const Device::UseBytes& use) const {
    device->map(address, bytes, access, use);
  }
};

}  // namespace tessera
