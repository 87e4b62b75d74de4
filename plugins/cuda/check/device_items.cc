// SPDX-License-Identifier: Apache-2.0
// Stage 1: versions, the GPU, its kernels as the driver has loaded them, and one launch of each;
// and stage 3: these launches under compute-sanitizer. initcheck is left out: the device zeroes all
// memory that it allocates.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/check/items.h"
#include "plugins/cuda/communicator/nccl.h"
#include "plugins/cuda/device/context.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/images.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/optional_library.h"
#include "plugins/cuda/gemm/cublaslt.h"
#include "plugins/loader.h"
#ifdef TESSERA_HAS_CUDNN
#include "plugins/cuda/attention/cudnn_library.h"
#endif

namespace tessera::cuda {
namespace {

// The version of a library if it can be used here; else why not.
struct VersionedLibrary {
  std::string name;
  std::string (*version)(std::string& why_not);
};

std::string cublaslt_version(std::string& why_not) {
  const CublasLt* const library = find_cublaslt(why_not);
  return library == nullptr ? "" : library->version();
}

std::string cudnn_version(std::string& why_not) {
#ifdef TESSERA_HAS_CUDNN
  const Cudnn* const library = find_cudnn(why_not);
  return library == nullptr ? "" : library->version();
#else
  why_not = "this build was configured without cudnn.h";
  return "";
#endif
}

std::string nccl_version(std::string& why_not) {
  const Nccl* const library = find_nccl(why_not);
  int version = 0;
  if (library != nullptr) library->ncclGetVersion(&version);
  return version_text(static_cast<size_t>(version));
}

const VersionedLibrary kLibraries[] = {
    {"cuBLASLt", cublaslt_version}, {"cuDNN", cudnn_version}, {"NCCL", nccl_version}};

Findings versions() {
  Findings findings;
  const auto add = [&](const std::string& name, const std::string& version) {
    findings.rows.push_back({{"what", name}, {"version", version}});
  };
  add("tessera", std::string(build_stamp()));
  add("toolkit of the build", fmt::format("{}.{}", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10));
  int driver = 0;
  check_cuda(load_driver().cuDriverGetVersion(&driver), "asking for the driver's version");
  add("driver", fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10));
  for (const VersionedLibrary& each : kLibraries) {
    std::string why_not;
    const std::string version = each.version(why_not);
    add(each.name, why_not.empty() ? version : why_not);
  }
  add("libraries", description_of_libraries(*shared_context(0)));
  return findings;
}

Findings describe_gpus() {
  Findings findings;
  int count = 0;
  check_cuda(load_driver().cuDeviceGetCount(&count), "counting GPUs");
  for (int i = 0; i < count; ++i) {
    const std::shared_ptr<Context> context = shared_context(i);
    context->make_current();
    size_t free = 0, total = 0;
    context->check(context->driver().cuMemGetInfo(&free, &total), "asking for free memory");
    const auto number = [&](CUdevice_attribute each) {
      return static_cast<double>(context->attribute(each));
    };
    findings.rows.push_back({{"GPU", std::to_string(i)},
                             {"name", context->name()},
                             {"capability", context->compute_capability() / 10.0},
                             {"multiprocessors", static_cast<double>(context->multiprocessors())},
                             {"MHz", 1e-3 * number(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)},
                             {"memory MHz", 1e-3 * number(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)},
                             {"bus bits", number(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)},
                             {"L2 MiB", number(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) / (1 << 20)},
                             {"memory GiB", static_cast<double>(total) / (1 << 30)},
                             {"free GiB", static_cast<double>(free) / (1 << 30)}});
  }
  findings.rows.push_back({{"used as", make_gpu()->description()}});
  return findings;
}

int attribute_of(const Context& context, CUfunction function, CUfunction_attribute attribute) {
  int value = 0;
  context.check(context.driver().cuFuncGetAttribute(&value, attribute, function),
                "asking for an attribute of a kernel");
  return value;
}

// A row for each kernel. "code" is the architecture of the machine code that runs: another one than
// the GPU's means that the driver compiled PTX.
void list_kernels(const Context& context, const Image& image, Findings& findings) {
  const Driver& driver = context.driver();
  CUmodule module = nullptr;
  context.check(driver.cuModuleLoadDataEx(&module, image.fatbin, 0, nullptr, nullptr),
                "loading kernels");
  unsigned count = 0;
  context.check(driver.cuModuleGetFunctionCount(&count, module), "counting kernels");
  std::vector<CUfunction> functions(count);
  context.check(driver.cuModuleEnumerateFunctions(functions.data(), count, module),
                "listing kernels");
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    context.check(driver.cuFuncGetName(&name, function), "asking for the name of a kernel");
    const auto number = [&](CUfunction_attribute each) {
      return static_cast<double>(attribute_of(context, function, each));
    };
    // The driver loads a function when it is asked for by name; until then it has no attributes.
    CUfunction loaded = nullptr;
    context.check(driver.cuModuleGetFunction(&loaded, module, name), "loading a kernel");
    const std::string kernel = fmt::format("{}.{}", image.file, name);
    const double local = number(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    findings.rows.push_back({{"kernel", kernel},
                             {"registers", number(CU_FUNC_ATTRIBUTE_NUM_REGS)},
                             {"local bytes", local},
                             {"shared bytes", number(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)},
                             {"threads", number(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)},
                             {"code", number(CU_FUNC_ATTRIBUTE_BINARY_VERSION)}});
  }
  driver.cuModuleUnload(module);
}

Findings list_all_kernels() {
  Findings findings;
  const std::shared_ptr<Context> context = shared_context(0);
  context->make_current();
  for (const Image& image : kernel_images())
    note_failures(findings, std::string(image.file),
                  [&] { list_kernels(*context, image, findings); });
  return findings;
}

std::vector<std::string> op_families() {
  std::vector<std::string> families;
  for (const OpCase& row : all_op_cases()) {
    const std::string family = family_of(row);
    if (std::find(families.begin(), families.end(), family) == families.end())
      families.push_back(family);
  }
  return families;
}

// Runs the first case of each op of a family: every kernel loads and launches.
Findings launch_family(const std::string& family) {
  std::vector<OpCase> rows;  // Cases of one op follow each other.
  for (const OpCase& row : all_op_cases())
    if (family_of(row) == family && (rows.empty() || rows.back().op != row.op)) rows.push_back(row);
  return check_cases(rows);
}

}  // namespace

std::vector<Item> device_items() {
  std::vector<Item> items = {{1, "versions", versions},
                             {1, "GPUs", describe_gpus},
                             {1, "kernels in the binary", list_all_kernels}};
  const std::vector<std::string> families = op_families();
  for (const std::string& family : families)
    items.push_back({1, "launch " + family, [family] { return launch_family(family); }});
  for (const char* const tool : {"memcheck", "racecheck", "synccheck"})
    for (const std::string& family : families)
      items.push_back({.stage = 3,
                       .name = tool + (" " + family),
                       .run = [family] { return launch_family(family); },
                       .tool = tool});
  return items;
}

std::unique_ptr<Device> make_gpu() { return std::move(make_cuda_devices(1, 1).front()); }

std::string why_no_library(const std::string& name) {
  const auto each = std::ranges::find(kLibraries, name, &VersionedLibrary::name);
  CHECK(each != std::end(kLibraries), "no library {}", name);
  std::string why_not;
  each->version(why_not);
  return why_not;
}

}  // namespace tessera::cuda
