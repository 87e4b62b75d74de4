// SPDX-License-Identifier: Apache-2.0
// The goldens of tests/golden/hugging_face.py themselves: their size, and a padded vocabulary.
#include <algorithm>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tasks/run/directory/run_config.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST_CASE("the goldens of Hugging Face models are at most 3 MB") {
  uintmax_t bytes = 0, files = 0;
  for (const char* folder : {"", "../quantised"})
    for (const auto& entry : fs::recursive_directory_iterator(hf_golden(folder)))
      if (entry.is_regular_file()) {
        bytes += entry.file_size();
        ++files;
      }
  REQUIRE(files > 200);
  REQUIRE(bytes <= 3'000'000);
}

// A tokenizer without merges, of these many bytes from "!" on.
std::string tokenizer_of(int64_t tokens) {
  std::string vocab;
  for (int64_t id = 0; id < tokens; ++id)
    vocab += fmt::format("{}\"{}{}\": {}", id == 0 ? "" : ", ", id == 1 ? "\\" : "",
                         static_cast<char>('!' + id), id);
  return fmt::format(R"({{"version": "1.0", "added_tokens": [],
    "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}},
    "decoder": {{"type": "ByteLevel"}},
    "model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}})",
                     vocab);
}

// transformers padded the table from 45 rows, of which the ids of the golden are.
TEST_CASE("rows of a table beyond the tokens of a tokenizer are imported and exported") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("qwen2");
  const HfScores scores = read_scores(hf_golden("qwen2"));
  for (const auto& row : scores.ids) REQUIRE(std::ranges::max(row) < 45);
  REQUIRE(lm_of(config).vocab_size.get() == 48);
  fs::copy(hf_golden("qwen2"), directory / "hf");
  write_bytes(directory / "hf/tokenizer.json", tokenizer_of(45));
  import_hf(config, directory / "hf", directory / "run");
  const auto tokenizer = read_run_tokenizer(directory / "run");
  REQUIRE(tokenizer != nullptr);
  REQUIRE(tokenizer->vocab_size() == 45);
  const std::vector<float> logits = logits_of(config, directory / "run", scores.ids);
  REQUIRE(logits.size() == 2 * 20 * 48);
  REQUIRE(largest_difference(logits, scores.logits) < 1e-4);
  RunWith options;
  options.of_mode<ExportOptions>().family = "qwen2";
  export_hf(config, directory / "run", directory / "out", options);
  require_same_tensors(hf_golden("qwen2"), directory / "out");
  REQUIRE(read_file(directory / "out/tokenizer.json") == tokenizer_of(45));
}

}  // namespace
}  // namespace tessera
