// SPDX-License-Identifier: Apache-2.0
// Models exported to an object store, and imported from it and from Hugging Face.
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tasks/interop/hf_files.h"
#include "tests/support/catch.h"
#include "tests/support/s3_server.h"
#include "tests/support/source_tree.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

void put_folder(const S3Server& server, const fs::path& folder, const std::string& to) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file())
      server.put(fmt::format("{}/{}", to, entry.path().filename().string()), read_bytes(entry));
}

TEST_CASE("a model is exported to a bucket, replaced there, and imported from it") {
  const S3Server server;
  const TemporaryDirectory directory;
  const ExperimentConfig config = hf_experiment("gpt2");
  import_hf(config, hf_golden("gpt2"), directory / "run");
  RunWith small;
  small.of_mode<ExportOptions>().max_shard_bytes = 20000;
  export_hf(config, directory / "run", directory / "out", small);
  export_hf(config, directory / "run", "s3://bucket/out", small);
  const size_t files = server.objects("bucket/out/").size();
  for (const auto& entry : fs::directory_iterator(directory / "out"))
    REQUIRE(server.get("bucket/out/" + entry.path().filename().string()) == read_bytes(entry));
  import_hf(config, "s3://bucket/out", directory / "again");
  export_hf(config, directory / "again", "s3://bucket/out");
  REQUIRE(server.objects("bucket/out/").size() < files);  // The weights are in one file.
  server.put("bucket/out/notes.txt", "mine");
  REQUIRE_THAT(error_of([&] { export_hf(config, directory / "run", "s3://bucket/out"); }),
               Contains("--output=s3://bucket/out holds 'notes.txt', which no export wrote"));
}

TEST_CASE("a model of Hugging Face is imported by its name, without files that are not read") {
  const S3Server server;
  const TemporaryDirectory directory;
  for (const std::string name : {"tests/gpt2", "private-tests/gpt2"}) {
    put_folder(server, hf_golden("gpt2"), "hf/" + name);
    server.put("hf/" + name + "/pytorch_model.bin", "unread");
    import_hf(hf_experiment("gpt2"), "hf://" + name, directory / name);
  }
  REQUIRE(server.requests("GET", "pytorch_model.bin") == 0);
  REQUIRE_THAT(
      error_of([&] { import_hf(hf_experiment("gpt2"), "hf://tests/none", directory / "x"); }),
      Contains("hf://tests/none"));
}

TEST_CASE("whether a bucket has a tensor is known without a copy of its weights") {
  const S3Server server;
  put_folder(server, hf_golden("t5_v1_1"), "bucket/t5");
  REQUIRE(has_tensor("s3://bucket/t5", "lm_head.weight") == true);
  REQUIRE(has_tensor("s3://bucket/t5", "head.weight") == false);
  REQUIRE(!has_tensor("s3://bucket/t6", "lm_head.weight").has_value());
  server.put("bucket/t6/model.safetensors.index.json", R"({"weight_map": {"b": "c"}})");
  REQUIRE(has_tensor("s3://bucket/t6", "b") == true);
}

TEST_CASE("a tokenizer in a bucket is that of its files") {
  const S3Server server;
  const fs::path golden = source_root() / "tests/golden/tokenizers/gpt2";
  put_folder(server, golden, "bucket/tokenizer");
  REQUIRE(make_tokenizer("s3://bucket/tokenizer")->definition() ==
          make_tokenizer(golden.string())->definition());
}

}  // namespace
}  // namespace tessera
