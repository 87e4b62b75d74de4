// SPDX-License-Identifier: Apache-2.0
// Driver functions: modules from PTX or from nvcc's fatbin container, kernels and their limits.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"
#include "tests/virtual_gpu/fatbin.h"
#include "tests/virtual_gpu/gpu_kind.h"
#include "tests/virtual_gpu/parse_ptx.h"

namespace tessera::virtual_gpu {
namespace {

// The entry of a container that a GPU would run: PTX or machine code.
struct Choice {
  std::string_view ptx;
  bool is_compressed = false;
  int ptx_architecture = 0;
  bool has_machine_code = false;
};

Choice choose(const void* image, int capability) {
  Choice choice;
  for_each_entry(image, [&](const FatbinEntry& entry, std::string_view bytes) {
    const auto architecture = static_cast<int>(entry.architecture);
    if (entry.kind == FatbinEntry::kMachineCode)
      choice.has_machine_code |= architecture / 10 == capability / 10 && architecture <= capability;
    if (entry.kind != FatbinEntry::kPtx || architecture > capability ||
        architecture <= choice.ptx_architecture)
      return;
    choice.ptx_architecture = architecture;
    choice.is_compressed = entry.compressed_bytes != 0;
    choice.ptx = bytes.substr(0, bytes.find('\0'));
  });
  return choice;
}

// PTX text is parsed completely, so that errors are refused at load. Output of nvcc is trusted.
std::shared_ptr<LoadedModule> loaded(State& s, const DevicePtr& device, std::string_view ptx,
                                     bool is_text) {
  auto found = s.parsed.find(ptx);
  try {
    if (found == s.parsed.end()) found = s.parsed.emplace(ptx, parse_ptx(ptx, is_text)).first;
  } catch (const Fault& fault) {
    throw Refusal{CUDA_ERROR_INVALID_PTX, fault.text};
  }
  return std::make_shared<LoadedModule>(LoadedModule{device, found->second, found->first});
}

// Returns the product of the kernel's ".maxntid x, y, z".
int max_threads(std::string_view ptx, const std::string& kernel) {
  const size_t entry = ptx.find(".entry " + kernel + "(");
  if (entry == std::string_view::npos) return kThreadsPerBlock;
  const std::string head(ptx.substr(entry, ptx.find('{', entry) - entry));
  const size_t bound = head.find(".maxntid ");
  int x = kThreadsPerBlock, y = 1, z = 1;
  if (bound != std::string::npos)
    std::sscanf(head.c_str() + bound, ".maxntid %d, %d, %d", &x, &y, &z);
  return x * y * z;
}

CUfunction function_of(const Call& c, const std::shared_ptr<LoadedModule>& module,
                       const std::string& name) {
  const KernelInfo* info = nullptr;
  try {
    info = find_kernel(*module->code, name);
  } catch (const Fault& fault) {
    throw Refusal{CUDA_ERROR_INVALID_PTX, fault.text};
  }
  if (info == nullptr)
    throw Refusal{CUDA_ERROR_NOT_FOUND, fmt::format("the module has no kernel {}", name)};
  return c.s.functions.add(std::make_shared<LoadedFunction>(LoadedFunction{
      module, info, max_threads(module->ptx, name), kSharedDefault - info->static_shared_bytes}));
}

// Estimates registers per thread, which PTX does not contain: at most as many as let a block run.
int registers_of(const LoadedFunction& function) {
  return std::clamp(function.info->registers, 1,
                    std::min(255, kRegistersOfProcessor / function.max_threads));
}

void check_limits(const LoadedFunction& function, const Grid& grid) {
  const KernelInfo& info = *function.info;
  const auto check = [&](const char* what, uint64_t count, uint64_t most,
                         CUresult error = CUDA_ERROR_INVALID_VALUE) {
    if (count > most)
      throw Refusal{error,
                    fmt::format("launch of {}: {} {}, at most {}", info.name, count, what, most)};
  };
  const auto [x, y, z] = grid.threads;
  const auto& blocks = grid.blocks;
  const uint64_t threads = uint64_t{x} * y * z;
  if (threads == 0 || uint64_t{blocks[0]} * blocks[1] * blocks[2] == 0)
    throw Refusal{CUDA_ERROR_INVALID_VALUE,
                  fmt::format("launch of {}: no threads or no blocks", info.name)};
  check("threads in a block", threads, kThreadsPerBlock);
  check("threads in a block by __launch_bounds__", threads,
        static_cast<uint64_t>(function.max_threads), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  check("threads along z", z, 64);
  check("blocks along x", blocks[0], 0x7fffffff);
  check("blocks along y or z", std::max(blocks[1], blocks[2]), 65535);
  check("bytes of dynamic shared memory", grid.dynamic_shared_bytes,
        static_cast<uint64_t>(function.dynamic_shared_limit));
}

// Packs the bytes of the arguments at their offsets.
std::vector<std::byte> packed(const KernelInfo& info, void** arguments) {
  std::vector<std::byte> packed;
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    const auto [offset, bytes] = info.parameters[i];
    if (arguments == nullptr || arguments[i] == nullptr)
      throw Refusal{CUDA_ERROR_INVALID_VALUE,
                    fmt::format("launch of {}: no argument {}", info.name, i)};
    packed.resize(std::max(packed.size(), static_cast<size_t>(offset + bytes)));
    std::memcpy(packed.data() + offset, arguments[i], static_cast<size_t>(bytes));
  }
  return packed;
}

// Returns the number of blocks of a launch that run interleaved.
uint64_t resident_blocks() {
  const char* const number = std::getenv("TESSERA_VIRTUAL_GPU_RESIDENT_BLOCKS");
  return number == nullptr ? 1 : std::strtoull(number, nullptr, 10);
}

void launch(State& s, const StreamPtr& stream, const std::shared_ptr<LoadedFunction>& function,
            const Grid& grid, void** arguments) {
  const std::string& name = function->info->name;
  if (function->module->device != stream->device)
    throw Refusal{CUDA_ERROR_INVALID_HANDLE,
                  fmt::format("{} was loaded on GPU {}, and launched on {}", name,
                              function->module->device->ordinal, stream->name)};
  if (current_device != stream->device)
    throw Refusal{
        CUDA_ERROR_INVALID_HANDLE,
        fmt::format("{} is launched on {}, whose context is not current", name, stream->name)};
  check_limits(*function, grid);
  const auto run = [&memory = *s.memory, function, grid,
                    parameters = packed(*function->info, arguments),
                    device = stream->device->ordinal](uint64_t seed) {
    if (function->module->unloaded) throw Fault{"the module was unloaded before the kernel ran"};
    RunOptions options;
    options.seed = seed;
    options.resident_blocks = resident_blocks();
    options.device = device;
    return run_kernel(*function->module->code, *function->info, grid, parameters, memory, options);
  };
  s.enqueue(stream,
            {.kind = Task::Kind::kKernel, .name = "kernel " + name, .run = run, .grid = grid});
}

}  // namespace

namespace {

// Returns the newest PTX version that a driver supports, 84 for 8.4 (release notes of PTX).
int newest_ptx(uint64_t cuda_version) {
  int newest = 84;
  for (const auto& [cuda, ptx] : {std::pair{12050u, 85},
                                  {12070u, 86},
                                  {12080u, 87},
                                  {12090u, 88},
                                  {13000u, 90},
                                  {13010u, 91}})
    if (cuda_version >= cuda) newest = ptx;
  return newest;
}

void check_version(std::string_view ptx, uint64_t cuda_version) {
  int major = 0, minor = 0;
  const size_t begin = std::min(ptx.find(".version "), ptx.size());
  std::sscanf(std::string(ptx.substr(begin, 20)).c_str(), ".version %d.%d", &major, &minor);
  if (10 * major + minor > newest_ptx(cuda_version))
    throw Refusal{CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                  fmt::format("PTX {}.{} with a driver for CUDA {}.{}", major, minor,
                              cuda_version / 1000, cuda_version % 1000 / 10)};
}

}  // namespace

std::string_view ptx_of(const void* image, int capability, uint64_t cuda_version) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  if (magic != kFatbinMagic) {
    const std::string_view ptx = static_cast<const char*>(image);
    const size_t target = ptx.find(".target sm_");
    if (target == std::string_view::npos)
      throw Refusal{CUDA_ERROR_INVALID_IMAGE, "neither PTX nor a fatbin container"};
    const int architecture = std::atoi(ptx.data() + target + 11);
    if (architecture > capability)
      throw Refusal{CUDA_ERROR_NO_BINARY_FOR_GPU,
                    fmt::format("PTX for sm_{}, but the GPU is sm_{}", architecture, capability)};
    check_version(ptx, cuda_version);
    return ptx;
  }
  const Choice choice = choose(image, capability);
  if (choice.ptx.empty() && !choice.has_machine_code)
    throw Refusal{CUDA_ERROR_NO_BINARY_FOR_GPU,
                  fmt::format("neither machine code nor PTX for sm_{}", capability)};
  if (choice.ptx.empty() || choice.is_compressed)
    throw Refusal{CUDA_ERROR_INVALID_IMAGE,
                  "the virtual GPU needs PTX; compile with code=compute_80 and --no-compress"};
  if (!choice.has_machine_code) check_version(choice.ptx, cuda_version);
  return choice.ptx;
}

}  // namespace tessera::virtual_gpu

using namespace tessera::virtual_gpu;

CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  std::string reason;
  const CUresult result = call([&](const Call& c) {
    c.s.check_no_capture("cuModuleLoadDataEx");
    try {
      const int capability = static_cast<int>(c.s.config.capability);
      const std::string_view ptx = ptx_of(image, capability, c.s.config.cuda_version);
      *handle = c.s.modules.add(loaded(c.s, c.device, ptx, ptx.data() == image));
    } catch (const Refusal& refusal) {
      reason = refusal.text;
      throw;
    }
  });
  char* log = nullptr;
  size_t bytes = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      bytes = reinterpret_cast<uintptr_t>(values[i]);
  }
  if (log != nullptr) std::snprintf(log, bytes, "%s", reason.c_str());
  return result;
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  return call([&](const Call& c) {
    const std::shared_ptr<LoadedModule> module = c.s.modules.at(module_handle);
    *handle = function_of(c, module, name);
    module->named.insert(c.s.functions.at(*handle)->info);
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  return call([&](const Call& c) {
    *count = static_cast<unsigned>(c.s.modules.at(handle)->code->kernel_names.size());
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  return call([&](const Call& c) {
    const std::shared_ptr<LoadedModule> module = c.s.modules.at(handle);
    for (size_t i = 0; i < std::min<size_t>(count, module->code->kernel_names.size()); ++i)
      functions[i] = function_of(c, module, module->code->kernel_names[i]);
  });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return call([&](const Call& c) { *name = c.s.functions.at(handle)->info->name.c_str(); });
}

CUresult cuFuncLoad(CUfunction handle) {
  return call([&](const Call& c) { c.s.functions.at(handle)->loaded = true; });
}

CUresult cuModuleUnload(CUmodule handle) {
  return call([&](const Call& c) {
    const std::shared_ptr<LoadedModule> module = c.s.modules.remove(handle);
    module->unloaded = true;
    c.s.functions.remove_if([&](const LoadedFunction& f) { return f.module == module; });
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return call([&](const Call& c) {
    const std::shared_ptr<LoadedFunction> function = c.s.functions.at(handle);
    const bool needs_code = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ||
                            attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    if (needs_code && !function->loaded && !function->module->named.contains(function->info))
      throw Refusal{CUDA_ERROR_FUNCTION_NOT_LOADED,
                    fmt::format("an attribute of {}, which is not loaded", function->info->name)};
    const std::map<CUfunction_attribute, int> values = {
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function->max_threads},
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function->info->static_shared_bytes},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, registers_of(*function)},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, static_cast<int>(c.s.config.capability)},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function->dynamic_shared_limit}};
    if (!values.contains(attribute))
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "unknown attribute of a function"};
    *value = values.at(attribute);
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return call([&](const Call& c) {
    const std::shared_ptr<LoadedFunction> function = c.s.functions.at(handle);
    const int most =
        gpu_kind(c.s.config.capability).shared_of_block() - function->info->static_shared_bytes;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > most)
      throw Refusal{CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: {} bytes of dynamic shared memory, at most {}",
                                function->info->name, value, most)};
    function->dynamic_shared_limit = value;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                     size_t dynamic_shared_bytes) {
  return call([&](const Call& c) {
    const std::shared_ptr<LoadedFunction> function = c.s.functions.at(handle);
    const KernelInfo& info = *function->info;
    if (threads < 1 || threads > kThreadsPerBlock)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "occupancy of a block of an impossible size"};
    const GpuKind& kind = gpu_kind(c.s.config.capability);
    const int shared =
        info.static_shared_bytes + static_cast<int>(dynamic_shared_bytes) + kSharedReserved;
    const int whole_warps = (threads + 31) / 32 * 32;
    *blocks = std::min({kind.blocks_of_processor, kind.threads_of_processor / whole_warps,
                        (kind.shared_of_processor << 10) / shared,
                        kRegistersOfProcessor / (registers_of(*function) * whole_warps)});
  });
}

CUresult cuLaunchKernel(CUfunction handle, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                        unsigned threads_x, unsigned threads_y, unsigned threads_z,
                        unsigned shared_bytes, CUstream stream_handle, void** arguments, void**) {
  const Grid grid{{blocks_x, blocks_y, blocks_z}, {threads_x, threads_y, threads_z}, shared_bytes};
  return call([&](const Call& c) {
    const std::shared_ptr<LoadedFunction> function = c.s.functions.at(handle);
    // Drivers load it now and may wait for all work of the GPU (CUDA's guide, "Lazy loading").
    if (!function->loaded)
      throw Refusal{CUDA_ERROR_INVALID_HANDLE,
                    fmt::format("{} is launched before cuFuncLoad", function->info->name)};
    launch(c.s, c.s.streams.at(stream_handle), function, grid, arguments);
  });
}
