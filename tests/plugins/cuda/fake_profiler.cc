// SPDX-License-Identifier: Apache-2.0
// A stand-in for a profiler that NVTX loads (NVTX_INJECTION64_PATH): it writes a line for each
// range to the file that TESSERA_FAKE_PROFILER_OUTPUT names, with the number of ranges around it.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

thread_local int g_depth = 0;

std::FILE* output() {
  static std::FILE* const file = std::fopen(std::getenv("TESSERA_FAKE_PROFILER_OUTPUT"), "a");
  return file;
}

nvtxDomainHandle_t create(const char* name) {
  std::fprintf(output(), "domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(&g_depth);
}
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  std::fprintf(output(), "%d %s\n", g_depth, attributes->message.ascii);
  std::fflush(output());
  return g_depth++;
}
int pop(nvtxDomainHandle_t) { return --g_depth; }

template <typename Function>
NvtxFunctionPointer as_function(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = as_function(create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = as_function(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = as_function(pop);
  return 1;
}
