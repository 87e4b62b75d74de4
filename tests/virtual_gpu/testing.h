// SPDX-License-Identifier: Apache-2.0
// Helpers of the virtual GPU's tests: memory with values, launches with typed parameters.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/virtual_gpu/interpreter.h"
#include "tests/virtual_gpu/parse_ptx.h"

namespace tessera::virtual_gpu {

class TestDevice {
 public:
  explicit TestDevice(std::string_view ptx) : module(parse_ptx(ptx)) {}

  template <typename T>
  uint64_t put(const std::vector<T>& values) {
    const uint64_t address = memory.allocate(0, values.size() * sizeof(T));
    Allocation& to = memory.find(address, to_bytes(values));
    std::memcpy(to.data.get(), values.data(), to_bytes(values));
    std::memset(to.initialised.get(), 1, to_bytes(values));
    return address;
  }
  template <typename T>
  std::vector<T> get(uint64_t address, size_t count) {
    std::vector<T> values(count);
    const Allocation& from = memory.find(address, to_bytes(values));
    std::memcpy(values.data(), from.data.get() + (address - from.address), to_bytes(values));
    return values;
  }
  template <typename T>
  uint64_t make(size_t count) {
    return memory.allocate(0, count * sizeof(T));
  }

  template <typename... Arguments>
  AccessLog run(const std::string& kernel, const Grid& grid, Arguments... arguments) {
    const KernelInfo* const info = find_kernel(*module, kernel);
    if (!info) throw Fault{"no kernel " + kernel};
    std::vector<std::byte> bytes;
    const auto add = [&](const auto& value) {
      bytes.resize((bytes.size() + sizeof value - 1) / sizeof value * sizeof value + sizeof value);
      std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
    };
    (add(arguments), ...);
    return run_kernel(*module, *info, grid, bytes, memory, options);
  }
  // Runs a kernel and returns the text of its fault; empty: no fault.
  template <typename... Arguments>
  std::string fault(const std::string& kernel, const Grid& grid, Arguments... arguments) {
    try {
      run(kernel, grid, arguments...);
    } catch (const Fault& f) {
      return f.text;
    }
    return {};
  }

  std::shared_ptr<const Module> module;
  Memory memory;
  RunOptions options;

 private:
  template <typename T>
  static uint64_t to_bytes(const std::vector<T>& values) {
    return values.size() * sizeof(T);
  }
};

inline Grid grid_of(uint32_t blocks, uint32_t threads, uint32_t dynamic_shared_bytes = 0) {
  return {{blocks, 1, 1}, {threads, 1, 1}, dynamic_shared_bytes};
}

}  // namespace tessera::virtual_gpu
