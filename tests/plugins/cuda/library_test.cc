// SPDX-License-Identifier: Apache-2.0
// Tests the search for NVIDIA's libraries.
#include "plugins/cuda/device/library.h"

#include <filesystem>
#include <string>
#include <vector>

#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

const std::string kFile = "libexample.so.7";
constexpr const char* kVariable = "TESSERA_EXAMPLE_LIBRARY";

// Creates a Python environment with an NVIDIA wheel that contains a library. Returns its file.
std::string make_environment(const fs::path& prefix) {
  const fs::path folder = prefix / "lib/python3.11/site-packages/nvidia/example/lib";
  fs::create_directories(folder);
  fs::create_directories(prefix / "bin");
  write_bytes(folder / kFile, "a library");
  write_bytes(prefix / "bin/python3", "a program");
  return (folder / kFile).string();
}

TEST_CASE("libraries are looked for where the loader looks, in the toolkit, and in wheels") {
  const TemporaryDirectory scratch;
  const std::string venv = make_environment(scratch / "venv");
  const std::string conda = make_environment(scratch / "conda");
  const std::string python = make_environment(scratch / "python");
  const ScopedVariable home("CUDA_HOME", "/toolkit");
  const ScopedVariable virtual_environment("VIRTUAL_ENV", (scratch / "venv").string());
  const ScopedVariable conda_prefix("CONDA_PREFIX", (scratch / "conda").string());
  // An environment without its own python3 and one below the current directory are ignored.
  const ScopedVariable path("PATH",
                            scratch.path().string() + ":.:" + (scratch / "python/bin").string());
  REQUIRE(library_files(kFile, kVariable) ==
          std::vector<std::string>{kFile, "/toolkit/lib64/" + kFile,
                                   "/usr/local/cuda/lib64/" + kFile, venv, conda, python});
  const ScopedVariable named(kVariable, "/elsewhere/" + kFile);
  REQUIRE(library_files(kFile, kVariable) == std::vector<std::string>{"/elsewhere/" + kFile});
}

}  // namespace
}  // namespace tessera::cuda
