// SPDX-License-Identifier: Apache-2.0
// The compiled kernel files, embedded in the plugin (cmake/TesseraCuda.cmake writes the table).
#pragma once

#include <span>
#include <string_view>

namespace tessera::cuda {

struct Image {
  std::string_view file;  // "norm" for kernels/norm.cu.
  const unsigned char* fatbin = nullptr;
};

std::span<const Image> kernel_images();

}  // namespace tessera::cuda
