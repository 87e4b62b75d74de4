// SPDX-License-Identifier: Apache-2.0
// A library with the functions of NVRTC that we call, for TESSERA_CUDA_NVRTC. It caches results of
// NVIDIA's library in the build folder, by text, options and version of the library, so that the
// many runs of the tests compile each text once.
#include <dlfcn.h>
#include <nvrtc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

namespace {

namespace filesystem = std::filesystem;

constexpr const char* kFolder = TESSERA_BINARY_DIR "/generated/nvrtc";

// Returns NVIDIA's function of this name. Loads the library at the first call.
template <typename Pointer>
Pointer real(const char* name) {
  static void* const library = [] {
    void* const opened = dlopen(TESSERA_NVRTC_FILE, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "nvrtc_cache: %s\n", dlerror());
      std::abort();
    }
    return opened;
  }();
  return reinterpret_cast<Pointer>(dlsym(library, name));
}
#define TESSERA_REAL(function) real<decltype(&::function)>(#function)

// Identifies the library's version by the size and time of its file.
std::string library_version() {
  struct stat info = {};
  stat(TESSERA_NVRTC_FILE, &info);
  return std::to_string(info.st_size) + " " + std::to_string(info.st_mtime) + "\n";
}

struct Program {
  std::string text, name, ptx, log;
};
Program& as_program(nvrtcProgram program) { return *reinterpret_cast<Program*>(program); }

// Sets ptx and log with NVIDIA's library.
nvrtcResult compile(Program& program, int count, const char* const* options) {
  nvrtcProgram made = nullptr;
  nvrtcResult result = TESSERA_REAL(nvrtcCreateProgram)(&made, program.text.c_str(),
                                                        program.name.c_str(), 0, nullptr, nullptr);
  if (result != NVRTC_SUCCESS) return result;
  result = TESSERA_REAL(nvrtcCompileProgram)(made, count, options);
  size_t size = 0;
  TESSERA_REAL(nvrtcGetProgramLogSize)(made, &size);
  program.log.resize(size);
  TESSERA_REAL(nvrtcGetProgramLog)(made, program.log.data());
  if (result == NVRTC_SUCCESS) {
    TESSERA_REAL(nvrtcGetPTXSize)(made, &size);
    program.ptx.resize(size);
    TESSERA_REAL(nvrtcGetPTX)(made, program.ptx.data());
  }
  TESSERA_REAL(nvrtcDestroyProgram)(&made);
  return result;
}

filesystem::path file_of(const std::string& key) {
  return filesystem::path(kFolder) / std::to_string(std::hash<std::string>()(key));
}
// Returns the cached content of a key, or "".
std::string kept(const std::string& key) {
  std::ifstream in(file_of(key), std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  return content.starts_with(key) ? content.substr(key.size()) : "";
}
// Writes the file atomically, since several processes may write it.
void keep(const std::string& key, const std::string& content) {
  std::error_code ignored;
  filesystem::create_directories(kFolder, ignored);
  const filesystem::path draft = file_of(key).string() + "." + std::to_string(getpid());
  std::ofstream(draft, std::ios::binary) << key << content;
  filesystem::rename(draft, file_of(key), ignored);
}

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  const std::string key = library_version() + "version\n";
  if (std::sscanf(kept(key).c_str(), "%d %d", major, minor) == 2) return NVRTC_SUCCESS;
  const nvrtcResult result = TESSERA_REAL(nvrtcVersion)(major, minor);
  keep(key, std::to_string(*major) + " " + std::to_string(*minor));
  return result;
}
const char* nvrtcGetErrorString(nvrtcResult result) {
  return TESSERA_REAL(nvrtcGetErrorString)(result);
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char* name, int,
                               const char* const*, const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(new Program{text, name, "", ""});
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete &as_program(*program);
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram handle, int count, const char* const* options) {
  Program& program = as_program(handle);
  std::string key = library_version() + program.name + "\n";
  for (int i = 0; i < count; ++i) key += std::string(options[i]) + "\n";
  key += program.text + '\0';
  program.ptx = kept(key);
  if (!program.ptx.empty()) return NVRTC_SUCCESS;
  const nvrtcResult result = compile(program, count, options);
  if (result == NVRTC_SUCCESS) keep(key, program.ptx);
  return result;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  *size = as_program(program).ptx.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
  std::ranges::copy(as_program(program).ptx, ptx);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  *size = as_program(program).log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  *std::ranges::copy(as_program(program).log, log).out = '\0';
  return NVRTC_SUCCESS;
}

}  // extern "C"
#undef TESSERA_REAL
