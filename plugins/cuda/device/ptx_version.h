// SPDX-License-Identifier: Apache-2.0
// Versions of PTX. A driver refuses PTX of a newer toolkit than its own, whatever the text uses;
// ours uses nothing newer than compute_80, so the version of the oldest supported driver will do.
#pragma once

#include <string>

namespace tessera::cuda {

// `ptx` with the version of PTX that the oldest supported driver has (CUDA 12.4).
std::string with_oldest_version(std::string ptx);

// The PTX in an uncompressed fatbin, with that version; "" if `image` is not a fatbin or has no
// PTX.
std::string oldest_ptx(const void* image);

}  // namespace tessera::cuda
