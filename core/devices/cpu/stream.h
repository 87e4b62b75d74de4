// SPDX-License-Identifier: Apache-2.0
// Kernels that are functions of the host, used by CPU devices and their communicator, and the
// streams that run them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "core/devices/device.h"

namespace tessera {

// LaunchArgs with pointers that the host can use.
struct HostArgs {
  std::span<const std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  std::byte* scratch = nullptr;
};

// A kernel that runs on the host. Thread-compatible: one run at a time.
class HostKernel : public Kernel {
 public:
  virtual void run(const HostArgs& args) = 0;
};

// Returns a kernel that a device of the host has prepared; std::bad_cast for any other.
inline HostKernel& host_kernel(Kernel& kernel) { return dynamic_cast<HostKernel&>(kernel); }

// Makes a stream that works on the caller's thread during the calls, and throws there; later calls
// and synchronize() do not throw that failure again. Addresses are pointers.
std::unique_ptr<Stream> make_inline_stream();

struct ThreadStreamOptions {
  std::function<std::byte*(DeviceAddress)> to_host;  // Unset: addresses are pointers.
  std::function<void()> before_each;  // Called before each launch and copy; tests delay there.
};

// Makes a stream that works on a thread of its own, which is woken promptly. Error if the system
// refuses a thread.
std::unique_ptr<Stream> make_thread_stream(ThreadStreamOptions options = {});

// Makes an event for these streams.
std::unique_ptr<Event> make_host_event();

inline DeviceAddress address_of(const std::byte* pointer) {
  return DeviceAddress(reinterpret_cast<uintptr_t>(pointer));
}

inline std::byte* pointer_to(DeviceAddress address) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address.value()));
}

}  // namespace tessera
