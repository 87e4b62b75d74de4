// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/nvrtc.h"

#include <nvrtc.h>

#include <iterator>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/driver.h"
#include "plugins/cuda/device/library.h"
#include "plugins/cuda/device/ptx_version.h"

namespace tessera::cuda {
namespace {

// The functions we call.
struct Nvrtc {
  decltype(&::nvrtcVersion) version;
  decltype(&::nvrtcGetErrorString) get_error_string;
  decltype(&::nvrtcCreateProgram) create_program;
  decltype(&::nvrtcDestroyProgram) destroy_program;
  decltype(&::nvrtcCompileProgram) compile_program;
  decltype(&::nvrtcGetPTXSize) get_ptx_size;
  decltype(&::nvrtcGetPTX) get_ptx;
  decltype(&::nvrtcGetProgramLogSize) get_log_size;
  decltype(&::nvrtcGetProgramLog) get_log;
};

Library open_nvrtc() {
  try {
    return Library(toolkit_library_files("nvrtc", kNvrtcVariable));
  } catch (const Error& error) {
    fail(
        "--device=cuda: elementwise kernels are compiled with NVRTC, which was not found: {}; "
        "install the CUDA toolkit, or set {} to the file",
        error.what(), kNvrtcVariable);
  }
}

Nvrtc load_nvrtc() {
  const Library library = open_nvrtc();
  Nvrtc nvrtc;
  library.find(nvrtc.version, "nvrtcVersion");
  library.find(nvrtc.get_error_string, "nvrtcGetErrorString");
  library.find(nvrtc.create_program, "nvrtcCreateProgram");
  library.find(nvrtc.destroy_program, "nvrtcDestroyProgram");
  library.find(nvrtc.compile_program, "nvrtcCompileProgram");
  library.find(nvrtc.get_ptx_size, "nvrtcGetPTXSize");
  library.find(nvrtc.get_ptx, "nvrtcGetPTX");
  library.find(nvrtc.get_log_size, "nvrtcGetProgramLogSize");
  library.find(nvrtc.get_log, "nvrtcGetProgramLog");
  int major = 0, minor = 0;
  nvrtc.version(&major, &minor);
  note_library("NVRTC", fmt::format("{}.{}", major, minor), library);
  return nvrtc;
}

const Nvrtc& nvrtc() {
  static const Nvrtc* const instance = new Nvrtc(load_nvrtc());  // Used until the process ends.
  return *instance;
}

class Program {
 public:
  Program(std::string_view name, const std::string& text) {
    const std::string file = fmt::format("{}.cu", name);
    check(nvrtc().create_program(&program_, text.c_str(), file.c_str(), 0, nullptr, nullptr),
          "reading", name);
    const char* const options[] = {"--gpu-architecture=compute_80", "--std=c++17", "--fmad=false",
                                   "--generate-line-info"};
    const nvrtcResult result = nvrtc().compile_program(program_, std::size(options), options);
    CHECK(result != NVRTC_ERROR_COMPILATION, "the text of {} is wrong: {}\n{}", name, log(), text);
    check(result, "compiling", name);
  }
  ~Program() { nvrtc().destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string ptx() const {
    size_t size = 0;
    check(nvrtc().get_ptx_size(program_, &size), "compiling", "PTX");
    std::string ptx(size, '\0');
    check(nvrtc().get_ptx(program_, ptx.data()), "compiling", "PTX");
    ptx.resize(ptx.find('\0') == ptx.npos ? size : ptx.find('\0'));
    return ptx;
  }

 private:
  static void check(nvrtcResult result, std::string_view what, std::string_view name) {
    if (result != NVRTC_SUCCESS)
      fail("--device=cuda: NVRTC, {} {}: {}", what, name, nvrtc().get_error_string(result));
  }
  std::string log() const {
    size_t size = 0;
    if (nvrtc().get_log_size(program_, &size) != NVRTC_SUCCESS) return "";
    std::string log(size, '\0');
    return nvrtc().get_log(program_, log.data()) == NVRTC_SUCCESS ? log : "";
  }

  nvrtcProgram program_ = nullptr;
};

}  // namespace

const CompiledText& compile_text(std::string_view name, const std::string& text) {
  static std::mutex mutex;
  static auto* const compiled = new std::map<std::string, CompiledText>;  // By text.
  const std::lock_guard lock(mutex);
  const auto found = compiled->find(text);
  if (found != compiled->end()) return found->second;
  CompiledText result{fmt::format("{}#{}", name, compiled->size()),
                      with_oldest_version(Program(name, text).ptx())};
  return compiled->emplace(text, std::move(result)).first->second;
}

}  // namespace tessera::cuda
