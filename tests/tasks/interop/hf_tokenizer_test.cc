// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_tokenizer.h"

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tasks/run_directory/run_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

constexpr const char* kTokenizer = R"({"version": "1.0",
  "added_tokens": [{"id": 3, "content": "<end>", "special": true, "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

TEST_CASE("import keeps the tokenizer with the run, and export writes it unchanged") {
  const TemporaryDirectory directory;
  fs::copy(hf_golden("llama"), directory / "hf");
  write_bytes(directory / "hf/tokenizer.json", kTokenizer);
  write_bytes(directory / "hf/tokenizer_config.json", R"({"eos_token": "<end>"})");
  const ExperimentConfig config = hf_experiment("llama");
  import_hf(config, directory / "hf", directory / "run");
  REQUIRE(read_run_tokenizer(directory / "run")->encode("ab").size() == 1);
  export_hf(config, directory / "run", directory / "out");
  REQUIRE(read_bytes(directory / "out/tokenizer.json") == kTokenizer);
  REQUIRE(read_bytes(directory / "out/tokenizer_config.json") == R"({"eos_token": "<end>"})");
  REQUIRE_THAT(read_bytes(directory / "out/config.json"), Contains("\"eos_token_id\": 3"));
  REQUIRE_THAT(read_bytes(directory / "out/tessera_export.json"), Contains("tokenizer.json"));
}

TEST_CASE("a tokenizer without tokenizer_config.json is exported with a default one") {
  const TemporaryDirectory directory;
  write_bytes(directory / "tokenizer.json", kTokenizer);
  const HfTokenizer tokenizer = hf_tokenizer_of(*make_tokenizer(directory.path().string()));
  REQUIRE(tokenizer.files.at("tokenizer.json") == kTokenizer);
  REQUIRE_THAT(tokenizer.files.at("tokenizer_config.json"),
               Contains("\"tokenizer_class\": \"PreTrainedTokenizerFast\""));
}

TEST_CASE("a missing tokenizer is reported and is not an error") {
  const TemporaryDirectory directory;
  const HfTokenizer bytes = hf_tokenizer_of(*make_tokenizer("bytes"));
  REQUIRE(bytes.files.empty());
  REQUIRE_THAT(bytes.remark, Contains("the tokenizer 'bytes' is no file"));
  ExperimentConfig config = hf_experiment("llama");
  REQUIRE_THAT(hf_tokenizer_of(config, directory.path()).remark, Contains("has no tokenizer"));
  config.input =
      FlatTokensInput::HParams{.path = "/nowhere/tokens.h5", .global_batch_size = 1, .seq_len = 4};
  REQUIRE_THAT(hf_tokenizer_of(config, directory.path()).remark,
               Contains("cannot be opened") && Contains("/nowhere/tokens.h5"));
}

}  // namespace
}  // namespace tessera
