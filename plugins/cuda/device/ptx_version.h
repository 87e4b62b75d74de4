// SPDX-License-Identifier: Apache-2.0
// Versions of PTX. A driver refuses PTX of a newer toolkit than its own, whatever the text uses;
// ours uses nothing newer than compute_80, so the version of the oldest supported driver will do.
#pragma once

#include <string>

namespace tessera::cuda {

// `ptx` with the version of PTX that the oldest supported driver has (CUDA 12.4).
std::string with_oldest_version(std::string ptx);

// The same of the PTX in a fatbin that is not compressed; "" if it has none, or `image` is none.
std::string oldest_ptx(const void* image);

}  // namespace tessera::cuda
