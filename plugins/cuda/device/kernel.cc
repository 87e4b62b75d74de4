// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/kernel.h"

#include <mutex>
#include <vector>

#include "core/base/error.h"
#include "plugins/cuda/device/library.h"

namespace tessera::cuda {
namespace {

struct Family {
  bool (*serves)(const OpDef& op);
  KernelFactory factory;
};

struct Registered {
  KernelFactory factory = nullptr;
  int least_capability = 0;
};

std::map<const OpDef*, Registered>& kernels() {
  static auto* instance = new std::map<const OpDef*, Registered>;
  return *instance;
}

std::vector<Family>& families() {
  static auto* instance = new std::vector<Family>;
  return *instance;
}

std::vector<std::string (*)(Context&)>& descriptions() {
  static auto* instance = new std::vector<std::string (*)(Context&)>;
  return *instance;
}

struct Noted {
  std::mutex mutex;
  std::map<std::string, int> kernels;
};
Noted& noted() {
  static auto* instance = new Noted;
  return *instance;
}

}  // namespace

void note_implementation(std::string_view name) {
  const std::lock_guard lock(noted().mutex);
  ++noted().kernels[std::string(name)];
}

std::map<std::string, int> noted_implementations() {
  const std::lock_guard lock(noted().mutex);
  return noted().kernels;
}

DescriptionRegistrar::DescriptionRegistrar(std::string (*describe)(Context&)) {
  descriptions().push_back(describe);
}

std::string description_of_libraries(Context& context) {
  std::string text;
  for (const auto describe : descriptions()) text += ", " + describe(context);
  const std::string libraries = noted_libraries();
  return libraries.empty() ? text : fmt::format("{}; libraries: {}", text, libraries);
}

KernelRegistrar::KernelRegistrar(std::initializer_list<const OpDef*> ops, KernelFactory factory,
                                 int least_capability) {
  for (const OpDef* op : ops) kernels()[op] = {factory, least_capability};
}

KernelRegistrar::KernelRegistrar(bool (*serves)(const OpDef& op), KernelFactory factory) {
  families().push_back({serves, factory});
}

KernelFactory find_kernel(const OpDef& op, int capability) {
  const auto found = kernels().find(&op);
  if (found != kernels().end())
    return capability >= found->second.least_capability ? found->second.factory : nullptr;
  for (const Family& family : families())
    if (family.serves(op)) return family.factory;
  return nullptr;
}

std::string_view float_suffix(const Graph& graph, const Node& node, ValueId value) {
  const DType dtype = graph.type(value).dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: no CUDA kernel for {}; cast it to f32 or bf16", node.op->name, dtype_name(dtype));
  return dtype_name(dtype);
}

}  // namespace tessera::cuda
