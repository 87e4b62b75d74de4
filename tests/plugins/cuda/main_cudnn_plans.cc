// SPDX-License-Identifier: Apache-2.0
// cudnn_plans DRIVER DEVICE ATTENTIONS: asks the installed cuDNN for plans on a GPU that the file
// DEVICE describes, with the stand-in driver of the file DRIVER (planning_driver.cc). A separate
// process, because the tests have another stand-in driver. Prints the library's version; then, for
// each attention in the file ATTENTIONS (the members of CudnnAttention in order), the bytes of its
// scratch memory, or -1 if it is not supported. Without cuDNN it prints why and exits with 3.
#include <dlfcn.h>

#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/attention/cudnn_attention.h"

namespace tessera::cuda {
namespace {

int print_plans(const char* driver, const char* device_file, const char* attentions) {
  // When the library loads libcuda.so.1, it gets this one by its name.
  CHECK(dlopen(driver, RTLD_NOW | RTLD_GLOBAL) != nullptr, "{}", dlerror());
  std::string why;
  const Cudnn* const library = find_cudnn(why);
  if (library == nullptr) {
    fmt::print("{}\n", why);
    return 3;
  }
  fmt::print("{}\n", library->version());
  std::ifstream file(device_file);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const CudnnDescriptor device = cudnn_description(*library, text);
  std::ifstream lines(attentions);
  CudnnAttention a;
  while (lines >> a.batch >> a.queries >> a.keys >> a.heads >> a.kv_heads >> a.head_dim >>
         a.causal >> a.gradient >> a.deterministic >> a.scale >> a.logit_cap) {
    const std::optional<CudnnPlan> plan = plan_attention(*library, {.description = &device}, a);
    fmt::print("{}\n", plan ? plan->scratch_bytes() : -1);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::cuda

int main(int count, char** arguments) {
  if (count != 4) return 2;
  return tessera::cuda::print_plans(arguments[1], arguments[2], arguments[3]);
}
