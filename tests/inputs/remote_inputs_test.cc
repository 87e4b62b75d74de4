// SPDX-License-Identifier: Apache-2.0
// Inputs whose files are in a bucket give the batches of the same files here.
#include <fstream>

#include <fmt/format.h>

#include "core/io/storage/storage.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/readers/text_files.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/build_tokens.h"
#include "tests/support/catch.h"
#include "tests/support/s3_server.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr int kShards = 3;

// Shards with names that say what they are, one without, and what is left out.
void write_corpus(const TemporaryDirectory& directory) {
  std::filesystem::create_directories(directory / "more");
  for (int shard = 0; shard < kShards; ++shard) {
    std::ofstream file(directory / fmt::format("{}{}.jsonl", shard == 1 ? "more/" : "", shard));
    for (int i = 0; i < 50; ++i)
      file << fmt::format("{{\"text\": \"document {} of shard {}\"}}\n", i, shard);
  }
  std::ofstream(directory / ".hidden.jsonl") << "{\"text\": \"hidden\"}\n";
  std::ofstream(directory / "tokens.bin") << "tokens";
}

template <typename Input>
std::vector<int32_t> ids_of(const typename Input::HParams& p, int64_t batches,
                            const InputState* from = nullptr, InputState* after = nullptr) {
  Input input(p);
  input.attach({});
  if (from != nullptr) input.restore(*from);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < batches; ++i) {
    const Batch batch = *input.get_next();
    const auto* data = batch.at("ids").template data<int32_t>();
    ids.insert(ids.end(), data, data + element_count(batch.at("ids").shape));
  }
  if (after != nullptr) *after = input.state();
  return ids;
}

StreamingTextInput::HParams stream(const std::string& path) {
  StreamingTextInput::HParams p;
  p.path = path;
  p.validation_fraction = 0.0;
  p.global_batch_size = 4;
  p.seq_len = 16;
  return p;
}

TEST_CASE("a stream of text from a bucket is that of the files, and resumes") {
  const S3Server server;
  const TemporaryDirectory directory;
  write_corpus(directory);
  upload_folder(directory.path(), "s3://data/corpus");
  InputState here, there;
  const auto local = ids_of<StreamingTextInput>(stream(directory.path().string()), 6, {}, &here);
  REQUIRE(ids_of<StreamingTextInput>(stream("s3://data/corpus/"), 6, {}, &there) == local);
  REQUIRE(there.cursors == here.cursors);
  REQUIRE(ids_of<StreamingTextInput>(stream("s3://data/corpus"), 5, &here) ==
          ids_of<StreamingTextInput>(stream(directory.path().string()), 5, &here));
  // A list that is older than a file.
  server.plant(R"([{"do": "stale_list"}])");
  server.put("data/corpus/2.jsonl", server.get("data/corpus/2.jsonl"));
  REQUIRE_THAT(error_of([&] { ids_of<StreamingTextInput>(stream("s3://data/corpus"), 5, &here); }),
               Contains("the text differs from the run's: it was (3 shards"));
}

TEST_CASE("files of a bucket are named by a folder, a pattern or one URL") {
  const S3Server server;
  const TemporaryDirectory directory;
  write_corpus(directory);
  upload_folder(directory.path(), "s3://data/corpus");
  const auto names = [](const std::string& path) {
    std::string all;
    for (const TextFile& file : find_text_files({path}).files) all += file.name + " ";
    return all;
  };
  REQUIRE(names("s3://data/corpus") == "0.jsonl 2.jsonl more/1.jsonl ");
  REQUIRE(names("s3://data/corpus/*.jsonl") == "0.jsonl 2.jsonl ");
  REQUIRE(names("s3://data/corpus/*/[0-1].jsonl") == "1.jsonl ");
  REQUIRE(names("s3://data/corpus/2.jsonl") == "2.jsonl ");
  // Names say what the files are: none is read.
  REQUIRE(server.requests("GET", ".jsonl") == 0);
  REQUIRE_THAT(find_text_files({"s3://data/corpus"}).left_out,
               Contains("a token file (.bin): 1") && Contains("hidden: 1"));
  REQUIRE_THAT(error_of([] { find_text_files({"s3://data/none"}); }),
               Contains("s3://data/none: no such file or folder"));
  REQUIRE_THAT(error_of([] { find_text_files({"azure://c/none"}); }),
               Contains("no store has the scheme azure://"));
}

TEST_CASE("token files are read in a bucket") {
  const S3Server server;
  const TemporaryDirectory directory;
  write_corpus(directory);
  upload_folder(directory.path(), "s3://data/corpus");
  std::filesystem::create_directory(directory / "built");
  const auto bytes = make_tokenizer("bytes");
  const auto build = [&](const std::vector<std::string>& paths, const char* name) {
    TokenBuild build = small_build_of(paths, directory / "built" / name);
    build.tokenizer = bytes.get();
    build.identity = identity_of(*bytes);
    build.document_end = bytes->end_id();
    run_build(build);
  };
  build({"s3://data/corpus"}, "a.h5");
  build({(directory / "*.jsonl").string(), (directory / "more").string()}, "b.h5");
  REQUIRE(FlatTokensReader(directory / "built/a.h5", "train").num_tokens() ==
          FlatTokensReader(directory / "built/b.h5", "train").num_tokens());
  upload_folder(directory / "built", "s3://data/tokens");
  FlatTokensInput::HParams p;
  p.path = (directory / "built/*.h5").string();
  p.global_batch_size = 2;
  p.seq_len = 12;
  const auto local = ids_of<FlatTokensInput>(p, 5);
  p.path = std::string("s3://data/tokens/*.h5");
  REQUIRE(ids_of<FlatTokensInput>(p, 5) == local);
  p.path = std::string("s3://data/tokens/c.h5");
  REQUIRE_THAT(error_of([&] { ids_of<FlatTokensInput>(p, 1); }),
               Contains("s3://data/tokens/c.h5: no such file"));
}

}  // namespace
}  // namespace tessera
