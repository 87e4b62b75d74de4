// SPDX-License-Identifier: Apache-2.0
// Driver functions: modules from PTX or from nvcc's fatbin container, kernels and their limits.
#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"

namespace tessera::virtual_gpu {
namespace {

constexpr int kThreadsPerBlock = 1024;
constexpr int kRegisters = 65536;         // Of a block, and of a multiprocessor.
constexpr int kSharedDefault = 48 << 10;  // Of a block.
constexpr int kSharedOptIn = 227 << 10;   // Of a block that asked for it.
constexpr int kSharedOfProcessor = 228 << 10;

constexpr uint32_t kFatbinMagic = 0xBA55ED50;
// The container begins with this, and its entries follow.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
struct FatbinEntry {
  uint16_t kind;  // 1: PTX; 2: machine code.
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;  // 0: not compressed.
  uint32_t options;
  uint16_t minor, major;
  uint32_t architecture;  // 80 for sm_80.
};
static_assert(sizeof(FatbinHeader) == 16 && sizeof(FatbinEntry) == 32);

// The PTX that a GPU of this capability would compile, and whether it would run the container's
// machine code or that.
struct Choice {
  std::string_view ptx;
  bool is_compressed = false;
  int ptx_architecture = 0;
  bool has_machine_code = false;
};

Choice choose(const std::byte* image, int capability) {
  FatbinHeader header;
  std::memcpy(&header, image, sizeof(header));
  const std::byte* at = image + header.header_bytes;
  const std::byte* const end = at + header.bytes;
  Choice choice;
  while (at < end) {
    FatbinEntry entry;
    std::memcpy(&entry, at, sizeof(entry));
    const auto architecture = static_cast<int>(entry.architecture);
    if (entry.kind == 2)
      choice.has_machine_code |= architecture / 10 == capability / 10 && architecture <= capability;
    if (entry.kind == 1 && architecture <= capability && architecture > choice.ptx_architecture) {
      choice.ptx_architecture = architecture;
      choice.is_compressed = entry.compressed_bytes != 0;
      const auto* const text = reinterpret_cast<const char*>(at + entry.header_bytes);
      choice.ptx = {text, strnlen(text, entry.bytes)};
    }
    at += entry.header_bytes + entry.bytes;
  }
  return choice;
}

// "80" of ".target sm_80".
int target_of(std::string_view ptx) {
  const size_t at = ptx.find(".target sm_");
  return at == std::string_view::npos ? 0 : std::atoi(std::string(ptx.substr(at + 11, 4)).c_str());
}

// Parsing is shared by the GPUs of a process.
std::shared_ptr<const Module> parsed(std::string_view ptx) {
  static std::map<std::string, std::shared_ptr<const Module>, std::less<>> known;
  auto found = known.find(ptx);
  if (found == known.end()) found = known.emplace(std::string(ptx), parse_ptx(ptx)).first;
  return found->second;
}

CUresult load(State& s, const std::shared_ptr<Device>& device, const void* image,
              CUmodule* handle) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  std::string_view ptx = static_cast<const char*>(image);
  if (magic == kFatbinMagic) {
    const Choice choice = choose(static_cast<const std::byte*>(image), s.config.capability);
    if (choice.ptx.empty() && !choice.has_machine_code)
      return s.reject(CUDA_ERROR_NO_BINARY_FOR_GPU,
                      fmt::format("neither machine code nor PTX for sm_{}", s.config.capability));
    if (choice.ptx.empty() || choice.is_compressed)
      return s.reject(CUDA_ERROR_INVALID_IMAGE,
                      "the virtual GPU needs PTX; compile with code=compute_80 and --no-compress");
    ptx = choice.ptx;
  } else if (ptx.find(".version") == std::string_view::npos) {
    return s.reject(CUDA_ERROR_INVALID_IMAGE, "neither PTX nor a fatbin container");
  } else if (target_of(ptx) > s.config.capability) {
    return s.reject(CUDA_ERROR_NO_BINARY_FOR_GPU, fmt::format("PTX for sm_{}, but the GPU is sm_{}",
                                                              target_of(ptx), s.config.capability));
  }
  try {
    *handle =
        s.modules.add(std::make_shared<LoadedModule>(LoadedModule{device, parsed(ptx), false}));
  } catch (const Fault& fault) {
    return s.reject(CUDA_ERROR_INVALID_PTX, fault.text);
  }
  return CUDA_SUCCESS;
}

// What `function` needs beyond what a block may have; none if it can run.
std::optional<std::string> excess(const LoadedFunction& function, const Grid& grid) {
  const auto [x, y, z] = grid.threads;
  const uint64_t threads = uint64_t{x} * y * z;
  const KernelInfo& info = *function.info;
  const auto too_many = [&](const char* what, uint64_t count, uint64_t most) {
    return fmt::format("launch of {}: {} {}, at most {}", info.name, count, what, most);
  };
  if (threads > kThreadsPerBlock || z > 64)
    return z > 64 ? too_many("threads along z", z, 64)
                  : too_many("threads in a block", threads, kThreadsPerBlock);
  if (grid.blocks[0] > 0x7fffffff) return too_many("blocks along x", grid.blocks[0], 0x7fffffff);
  if (std::max(grid.blocks[1], grid.blocks[2]) > 65535)
    return too_many("blocks along y or z", std::max(grid.blocks[1], grid.blocks[2]), 65535);
  if (threads == 0 || uint64_t{grid.blocks[0]} * grid.blocks[1] * grid.blocks[2] == 0)
    return fmt::format("launch of {}: no threads or no blocks", info.name);
  const uint64_t limit = static_cast<uint64_t>(function.dynamic_shared_limit);
  if (grid.dynamic_shared_bytes > limit)
    return too_many("bytes of dynamic shared memory", grid.dynamic_shared_bytes, limit);
  return std::nullopt;
}

CUresult launch(State& s, const StreamPtr& stream, const std::shared_ptr<LoadedFunction>& function,
                const Grid& grid, void** arguments) {
  const KernelInfo& info = *function->info;
  if (function->module->device != stream->device)
    return s.reject(CUDA_ERROR_INVALID_HANDLE,
                    fmt::format("{} was loaded on GPU {}, and launched on {}", info.name,
                                function->module->device->ordinal, stream->name));
  if (const auto text = excess(*function, grid)) return s.reject(CUDA_ERROR_INVALID_VALUE, *text);
  const auto [x, y, z] = grid.threads;
  if (int64_t{info.registers} * x * y * z > kRegisters)
    return s.reject(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                    fmt::format("launch of {}: {} registers for each of {} threads", info.name,
                                info.registers, x * y * z));
  std::vector<std::byte> parameters;
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    const auto [offset, bytes] = info.parameters[i];
    if (arguments == nullptr || arguments[i] == nullptr)
      return s.reject(CUDA_ERROR_INVALID_VALUE,
                      fmt::format("launch of {}: no argument {}", info.name, i));
    parameters.resize(std::max(parameters.size(), static_cast<size_t>(offset + bytes)));
    std::memcpy(parameters.data() + offset, arguments[i], static_cast<size_t>(bytes));
  }
  const auto run = [&s, function, grid, parameters,
                    device = stream->device->ordinal](uint64_t seed) {
    if (function->module->unloaded) throw Fault{"the module was unloaded before the kernel ran"};
    return run_kernel(*function->module->code, *function->info, grid, parameters, *s.memory,
                      {.seed = seed, .device = device});
  };
  return s.enqueue(stream, {.kind = Task::Kind::kKernel,
                            .name = fmt::format("kernel {}", info.name),
                            .run = run,
                            .host = {}});
}

template <typename Body>
CUresult with_function(CUfunction handle, const Body& body) {
  return with_context([&](State& s, const std::shared_ptr<Device>&) {
    const std::shared_ptr<LoadedFunction> function = s.functions.find(handle);
    if (function == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such function");
    return body(s, function);
  });
}

}  // namespace
}  // namespace tessera::virtual_gpu

using namespace tessera::virtual_gpu;

CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const CUresult refused = s.check_no_capture("cuModuleLoadDataEx");
    const CUresult result = refused != CUDA_SUCCESS ? refused : load(s, device, image, handle);
    char* log = nullptr;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = static_cast<char*>(values[i]);
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        bytes = reinterpret_cast<uintptr_t>(values[i]);
    }
    if (result != CUDA_SUCCESS && log != nullptr)
      std::snprintf(log, bytes, "%s", s.last_fault.c_str());
    return result;
  });
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  return with_context([&](State& s, const auto&) {
    const std::shared_ptr<LoadedModule> module = s.modules.find(module_handle);
    if (module == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such module");
    const KernelInfo* const info = find_kernel(*module->code, name);
    if (info == nullptr)
      return s.reject(CUDA_ERROR_NOT_FOUND, fmt::format("the module has no kernel {}", name));
    *handle = s.functions.add(std::make_shared<LoadedFunction>(
        LoadedFunction{module, info, kSharedDefault - info->static_shared_bytes}));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleUnload(CUmodule handle) {
  return with_context([&](State& s, const auto&) {
    const std::shared_ptr<LoadedModule> module = s.modules.find(handle);
    if (module == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such module");
    module->unloaded = true;
    s.functions.remove_if([&](const LoadedFunction& f) { return f.module == module; });
    s.modules.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return with_function(handle, [&](State& s, const std::shared_ptr<LoadedFunction>& function) {
    const KernelInfo& info = *function->info;
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return *value = kThreadsPerBlock, CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        return *value = info.static_shared_bytes, CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        return *value = info.registers, CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        return *value = 0, CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return *value = function->dynamic_shared_limit, CUDA_SUCCESS;
      default:
        return s.reject(CUDA_ERROR_INVALID_VALUE, "unknown function attribute");
    }
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return with_function(handle, [&](State& s, const std::shared_ptr<LoadedFunction>& function) {
    const int most = kSharedOptIn - function->info->static_shared_bytes;
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > most)
      return s.reject(CUDA_ERROR_INVALID_VALUE,
                      fmt::format("{}: {} bytes of dynamic shared memory, at most {}",
                                  function->info->name, value, most));
    function->dynamic_shared_limit = value;
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                     size_t dynamic_shared_bytes) {
  return with_function(handle, [&](State& s, const std::shared_ptr<LoadedFunction>& function) {
    if (threads < 1 || threads > kThreadsPerBlock)
      return s.reject(CUDA_ERROR_INVALID_VALUE, "occupancy: unknown number of threads");
    constexpr int kReserved = 1 << 10;  // Of shared memory, for each block.
    const int shared =
        function->info->static_shared_bytes + static_cast<int>(dynamic_shared_bytes) + kReserved;
    const int whole_warps = (threads + 31) / 32 * 32;
    const int registers = std::max(function->info->registers, 1) * whole_warps;
    *blocks =
        std::min({32, 2048 / whole_warps, kSharedOfProcessor / shared, kRegisters / registers});
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchKernel(CUfunction handle, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                        unsigned threads_x, unsigned threads_y, unsigned threads_z,
                        unsigned shared_bytes, CUstream stream_handle, void** arguments, void**) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const StreamPtr stream = find_stream(s, device, stream_handle);
    const std::shared_ptr<LoadedFunction> function = s.functions.find(handle);
    if (stream == nullptr || function == nullptr)
      return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such stream or function");
    const Grid grid{
        {blocks_x, blocks_y, blocks_z}, {threads_x, threads_y, threads_z}, shared_bytes};
    return launch(s, stream, function, grid, arguments);
  });
}
