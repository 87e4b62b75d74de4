// SPDX-License-Identifier: Apache-2.0
// Makes the tests and the programs that they start compile with nvrtc_cache.cc, if it was built and
// the environment does not name another library.
#include <unistd.h>

#include <cstdlib>

namespace {

constexpr const char* kLibrary = TESSERA_BINARY_DIR "/lib/virtual_gpu/nvrtc_cache.so";
[[maybe_unused]] const bool kIsSet =
    access(kLibrary, R_OK) == 0 && setenv("TESSERA_CUDA_NVRTC", kLibrary, 0) == 0;

}  // namespace
