// SPDX-License-Identifier: Apache-2.0
// Token files of Megatron-LM, written by megatron-core (tests/golden/documents.py): documents by
// the index, exports with the same bytes, and damaged indices.
#include <sstream>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens/megatron_index.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "tests/support/catch.h"
#include "tests/support/source_tree.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

std::filesystem::path megatron_golden(const std::string& name) {
  return source_root() / "tests/golden/documents" / name;
}

// Returns what the program prints; its errors if it fails.
std::string tool(const std::vector<std::string>& arguments) {
  std::ostringstream out, errors;
  const int code = run_flat_tokens(arguments, out, errors);
  return code == 0 ? out.str() : errors.str();
}

TEST_CASE("documents of Megatron's files are those of the index, and exports have its bytes") {
  const TemporaryDirectory directory;
  const std::string tokens = "--output=" + (directory / "t.h5").string();
  for (const char* name : {"megatron_u16", "megatron_i32"}) {
    CAPTURE(name);
    const std::string bin = megatron_golden(std::string(name) + ".bin").string();
    REQUIRE_THAT(
        tool({"build", tokens, "--tokenizer=bytes", "--validation_fraction=0", bin}),
        Contains("932 training and 0 validation tokens") && Contains("documents: 24 for training"));
    REQUIRE_THAT(tool({"inspect", (directory / "t.h5").string(), "--first=5"}),
                 Contains("document 5: document 5 "));
    REQUIRE_THAT(
        tool({"export", "--output=" + (directory / "out").string(), (directory / "t.h5").string()}),
        Contains("932 tokens in 24 documents of train"));
    for (const char* extension : {".bin", ".idx"})
      REQUIRE(read_file(directory / (std::string("out") + extension)) ==
              read_file(megatron_golden(std::string("megatron_u16") + extension)));
  }
  // Documents go to the validation split one by one.
  const std::string bin = megatron_golden("megatron_u16.bin").string();
  tool({"build", tokens, "--tokenizer=bytes", "--validation_fraction=0.3", bin});
  const int64_t train = FlatTokensReader(directory / "t.h5", "train").num_documents();
  const int64_t held_out = FlatTokensReader(directory / "t.h5", "validation").num_documents();
  REQUIRE(train + held_out == 24);
  REQUIRE(held_out > 2);
  REQUIRE_THAT(tool({"export", "--output=" + (directory / "v").string(), "--split=validation",
                     (directory / "t.h5").string()}),
               Contains(fmt::format("in {} documents of validation", held_out)));
  REQUIRE(MegatronIndex(directory / "v.idx",
                        static_cast<int64_t>(std::filesystem::file_size(directory / "v.bin")))
              .num_documents() == held_out);
  REQUIRE_THAT(tool({"export", "--output=x"}), Contains("export needs --output=PREFIX and one"));
}

TEST_CASE("an index that disagrees with its tokens is an error, whatever byte is wrong") {
  const TemporaryDirectory directory;
  std::filesystem::copy(megatron_golden("megatron_u16.bin"), directory / "a.bin");
  const std::string index = read_file(megatron_golden("megatron_u16.idx"));
  const auto build = [&](const std::string& bytes) {
    write_file_atomically(directory / "a.idx", bytes);
    return tool({"build", "--output=" + (directory / "t.h5").string(), "--tokenizer=bytes",
                 (directory / "a.bin").string()});
  };
  REQUIRE_THAT(build(index), Contains("tokens of"));
  REQUIRE_THAT(build("something else"), Contains("a.idx: is not Megatron's index of ids in i16"));
  REQUIRE_THAT(build(index.substr(0, index.size() - 1)), Contains("but the file has 521 bytes"));
  // Lengths between the header and the last sequence are not read.
  constexpr size_t kHeader = 34, kPointers = kHeader + 24 * 4;
  for (size_t at = 0; at < index.size(); at += at < kHeader ? 1 : 8) {
    if (at >= kHeader && at < kPointers - 4) continue;
    CAPTURE(at);
    std::string damaged = index;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    const std::string said = build(damaged);
    if (said.find("tokens of") != std::string::npos) continue;  // Another valid boundary.
    REQUIRE_THAT(said, Contains("a.idx: "));
  }
  std::filesystem::resize_file(directory / "a.bin", 1862);
  REQUIRE_THAT(build(index), Contains("a.idx: is of a token file of 1864 bytes, but the one "
                                      "beside it has 1862"));
}

}  // namespace
}  // namespace tessera
