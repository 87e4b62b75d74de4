// SPDX-License-Identifier: Apache-2.0
// NVRTC, the compiler of CUDA C++ as a library (libnvrtc), loaded at run time: kernels whose text
// depends on the graph are compiled when they are prepared.
#pragma once

#include <string>
#include <string_view>

namespace tessera::cuda {

// The file to load if this environment variable is set.
inline constexpr const char* kNvrtcVariable = "TESSERA_CUDA_NVRTC";

// PTX for compute_80, which every supported GPU runs. Context::compiled_function() takes both.
struct CompiledText {
  std::string key;  // Different for different texts of this process.
  std::string ptx;
};

// The PTX of CUDA C++ text; `name` stands in messages and in the key. Products and sums are not
// contracted to fused multiply-adds, so that results have the same bits whichever ops share a
// kernel. A text is compiled once in the process, and the result lives as long. Error, in terms of
// the user, if there is no libnvrtc. Any thread.
const CompiledText& compile_text(std::string_view name, const std::string& text);

}  // namespace tessera::cuda
