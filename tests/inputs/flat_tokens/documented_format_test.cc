// SPDX-License-Identifier: Apache-2.0
// Runs the Python example of docs/formats.md that writes a token file, and reads the file.
#include <cstdlib>
#include <vector>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// The fenced Python block that contains `phrase`.
std::string python_block(const std::string& document, const std::string& phrase) {
  const std::string fence = "```python\n";
  const size_t at = document.find(phrase);
  REQUIRE(at != std::string::npos);
  const size_t begin = document.rfind(fence, at) + fence.size();
  return document.substr(begin, document.find("```", at) - begin);
}

TEST_CASE("a token file written by h5py as documented is read") {
  const std::string python = python_with("h5py");
  if (python.empty()) {
    WARN("skipped: no Python with h5py (Debian: python3-h5py)");
    return;
  }
  const TemporaryDirectory directory;
  const std::string document = read_bytes(TESSERA_SOURCE_DIR "/docs/formats.md");
  write_bytes(directory / "write.py", python_block(document, "h5py.File(\"tokens.h5\", \"w\")"));
  REQUIRE(std::system(
              fmt::format("cd {} && {} write.py", directory.path().string(), python).c_str()) == 0);
  const FlatTokensReader reader(directory / "tokens.h5", "train");
  std::vector<uint32_t> encoded(5);
  reader.read(0, encoded);
  REQUIRE(encoded == std::vector<uint32_t>{11, 18, 4, 15, 14});
  std::vector<uint64_t> starts(3);
  reader.read_starts(0, starts);
  REQUIRE(starts == std::vector<uint64_t>{0, 3, 5});
  REQUIRE(reader.tokenizer_name() == "mine");
  REQUIRE(reader.vocab_size() == 10);
}

}  // namespace
}  // namespace tessera
