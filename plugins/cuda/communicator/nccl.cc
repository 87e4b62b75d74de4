// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/nccl.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/driver.h"
#include "plugins/cuda/device/library.h"

namespace tessera::cuda {
namespace {

std::string version_text(int version) {  // 22809
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Throws why the library cannot be used.
Nccl load_nccl() {
  if (std::getenv(kNcclVariable) == nullptr && std::getenv(kDriverVariable) != nullptr)
    fail("{} names another driver, which NVIDIA's libraries do not use", kDriverVariable);
  Nccl table;
  try {
    const Library library(library_files("libnccl.so.2", kNcclVariable));
    table.for_each([&](auto& function, const char* name) { library.find(function, name); });
  } catch (const Error& error) {
    fail("NCCL was not found: {}; install it (Debian: libnccl2), or set {} to the file",
         error.what(), kNcclVariable);
  }
  int version = 0;
  table.check(table.ncclGetVersion(&version), nullptr, "asking for its version");
  if (version < nccl::kVersion)
    fail("NCCL is version {}, expected {} or newer; update it", version_text(version),
         version_text(nccl::kVersion));
  // Sums in the switch (NVLS) may differ from call to call; the others are the same each time.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  return table;
}

}  // namespace

void Nccl::check(nccl::Result result, nccl::Comm* comm, std::string_view what) const {
  if (result == nccl::ncclSuccess || result == nccl::ncclInProgress) return;
  const char* const last = ncclGetLastError(comm);
  const bool has_more = last != nullptr && *last != '\0';
  fail("NCCL, {}: {} (error {}){}{}; NCCL_DEBUG=INFO prints more", what, ncclGetErrorString(result),
       static_cast<int>(result), has_more ? ": " : "", has_more ? last : "");
}

const Nccl* find_nccl(std::string& why) {
  struct Loaded {
    std::unique_ptr<const Nccl> library;
    std::string why;
  };
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, Loaded>;  // By the file that was asked for.
  const char* const named = std::getenv(kNcclVariable);
  const std::lock_guard lock(mutex);
  const auto [each, is_new] = loaded->try_emplace(named == nullptr ? "" : named);
  try {
    if (is_new) each->second.library = std::make_unique<const Nccl>(load_nccl());
  } catch (const Error& error) {
    each->second.why = error.what();
  }
  why = each->second.why;
  return each->second.library.get();
}

}  // namespace tessera::cuda
