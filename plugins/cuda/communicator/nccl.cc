// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/nccl.h"

#include <optional>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/library.h"
#include "plugins/cuda/device/optional_library.h"

namespace tessera::cuda {
namespace {

// Throws why the library cannot be used.
Nccl load_nccl() {
  Nccl table;
  std::optional<Library> library;
  try {
    library.emplace(library_files("libnccl.so.2", kNcclVariable));
    table.for_each([&](auto& function, const char* name) { library->find(function, name); });
  } catch (const Error& error) {
    fail("NCCL was not found: {}; install it (Debian: libnccl2), or set {} to the file",
         error.what(), kNcclVariable);
  }
  int version = 0;
  table.check(table.ncclGetVersion(&version), nullptr, "asking for its version");
  if (version < nccl::kVersion)
    fail("NCCL is version {}, expected {} or newer; update it", version_text(version),
         version_text(nccl::kVersion));
  note_library(kNcclName, version_text(static_cast<size_t>(version)), *library);
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
  static auto* const library = new OptionalLibrary<Nccl>(kNcclVariable, load_nccl);
  return library->find(why);
}

}  // namespace tessera::cuda
