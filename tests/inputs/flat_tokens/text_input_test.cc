// SPDX-License-Identifier: Apache-2.0
// Corpus snapshots of runs.
#include "inputs/flat_tokens/text_input.h"

#include <algorithm>

#include "core/base/error.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/compress.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

std::string text_of(const fs::path& tokens, const std::string& split) {
  const FlatTokensReader reader(tokens, split);
  std::vector<uint32_t> encoded(static_cast<size_t>(reader.num_tokens()));
  reader.read(0, encoded);
  std::vector<int32_t> ids;
  for (uint32_t token : encoded) ids.push_back(token_id(token));
  return make_tokenizer("bytes")->decode(ids);
}

TEST_CASE("the byte tokenizer maps byte b to id b + 1 and back") {
  const auto tokenizer = make_tokenizer("bytes");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::vector<int32_t> ids = tokenizer->encode(all);
  REQUIRE(ids.front() == 1);
  REQUIRE(ids.back() == 256);
  REQUIRE(tokenizer->vocab_size() == 257);
  REQUIRE(tokenizer->decode(ids) == all);
  REQUIRE(tokenizer->decode({0, 66, 300, -1}) == "A");
  REQUIRE_THROWS_WITH(make_tokenizer("byte"), Contains("did you mean 'bytes'"));
}

TextInput::HParams hparams(const fs::path& path, const std::string& split) {
  TextInput::HParams p;
  p.path = path.string();
  p.split = split;
  p.global_batch_size = 2;
  p.seq_len = 4;
  p.shuffle = false;
  p.repeat = false;
  return p;
}

TEST_CASE("a run builds its corpus snapshot once and later starts read it") {
  const TemporaryDirectory directory;
  const fs::path text = directory / "t.txt";
  const Infeed infeed{.run_directory = directory / "run"};
  fs::create_directories(infeed.run_directory);
  write_bytes(text, "the quick brown fox jumps over the lazy dog");
  TextInput train(hparams(text, "train"));
  train.attach(infeed);
  REQUIRE(fs::exists(directory / "run/corpus.h5"));
  const Batch batch = *train.get_next();
  const int32_t* ids = batch.at("ids").data<int32_t>();
  REQUIRE(train.tokenizer()->decode({ids, ids + 8}) == "the quic");
  REQUIRE(train.vocab_size() == 257);
  REQUIRE(train.name() == "train");

  fs::remove(text);  // The snapshot remains.
  TextInput validation(hparams(text, "validation"));
  validation.attach(infeed);
  const HostArray tail = validation.get_next()->at("ids");
  REQUIRE(validation.tokenizer()->decode({tail.data<int32_t>(), tail.data<int32_t>() + 4}) ==
          "y do");
  REQUIRE(validation.name() == "validation");

  TextInput other(hparams(directory / "other.txt", "train"));
  REQUIRE_THROWS_WITH(other.attach(infeed),
                      Contains("is a snapshot of different text") && Contains("--job_log_dir"));
}

TEST_CASE("a snapshot of compressed lines of JSON contains its tokenizer") {
  const TemporaryDirectory directory;
  const Infeed infeed{.run_directory = directory / "run"};
  fs::create_directories(infeed.run_directory);
  fs::copy(fs::path(TESSERA_SOURCE_DIR) / "tests/golden/tokenizers/llama3.json",
           directory / "llama3.json");
  std::string lines;
  for (int i = 0; i < 200; ++i)
    lines += fmt::format("{{\"n\": {}, \"content\": \"the {}th document\"}}\n", i, i);
  write_bytes(directory / "shards/a.jsonl.gz", gzip(lines));
  TextInput::HParams p = hparams(directory / "shards", "train");
  p.tokenizer = (directory / "llama3.json").string();
  REQUIRE_THROWS_WITH(TextInput(p).attach(infeed), Contains("a.jsonl.gz:1") && Contains("content"));
  p.text_field = "content";
  TextInput train(p);
  train.attach(infeed);

  fs::remove(directory / "llama3.json");
  fs::remove_all(directory / "shards");
  p.split = "validation";
  TextInput validation(p);
  validation.attach(infeed);
  REQUIRE(train.tokenizer()->end_id().has_value());
  std::string texts;
  int documents = 0;
  for (TextInput* input : {&train, &validation}) {
    while (const std::optional<Batch> batch = input->get_next()) {
      const auto* ids = batch->at("ids").data<int32_t>();
      texts += input->tokenizer()->decode({ids, ids + 8});
      documents += static_cast<int>(std::count(ids, ids + 8, *input->tokenizer()->end_id()));
    }
  }
  REQUIRE(texts.find("the 77th document") != std::string::npos);
  REQUIRE(documents > 180);

  p.tokenizer = "bytes";
  REQUIRE_THROWS_WITH(TextInput(p).attach(infeed),
                      Contains("tokenizer") && Contains("llama3.json"));
}

TEST_CASE("a run says which files of its folder it does not read, and refuses other formats") {
  const TemporaryDirectory directory;
  const Infeed infeed{.run_directory = directory / "run"};
  fs::create_directories(infeed.run_directory);
  write_bytes(directory / "corpus/a.txt", "the quick brown fox jumps over the lazy dog");
  write_bytes(directory / "corpus/photo", std::string("\0\1", 2));
  TextInput input(hparams(directory / "corpus", "train"));
  input.attach(infeed);
  REQUIRE(input.remarks().size() == 1);
  REQUIRE_THAT(input.remarks()[0], Contains("corpus: left out: binary: 1 (") && Contains("photo"));
  write_bytes(directory / "a.jsonl.lz4", "\x04\x22\x4d\x18rest");
  TextInput compressed(hparams(directory / "a.jsonl.lz4", "train"));
  REQUIRE_THROWS_WITH(
      compressed.attach({.run_directory = directory / "corpus"}),
      Contains("a.jsonl.lz4: is LZ4, which is not read as text; decompress it: lz4 -dk "));
}

TEST_CASE("before its first step a run may change its text") {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.txt", "the quick brown fox jumps over the lazy dog");
  write_bytes(directory / "b.txt", "pack my box with five dozen liquor jugs, please");
  const Infeed infeed{.run_directory = directory.path(), .run_begun = false};
  TextInput(hparams(directory / "a.txt", "train")).attach(infeed);
  TextInput(hparams(directory / "b.txt", "train")).attach(infeed);
  REQUIRE_THAT(text_of(directory / "corpus.h5", "train"), Catch::StartsWith("pack my box"));
}

TEST_CASE("without a path a run trains on Tessera's own sources") {
  const TemporaryDirectory directory;
  TextInput::HParams p = hparams("", "train");
  TextInput input(p);
  input.attach({.run_directory = directory.path()});
  const std::string train = text_of(directory / "corpus.h5", "train");
  const std::string validation = text_of(directory / "corpus.h5", "validation");
  REQUIRE((train + validation).find("a run trains on Tessera's own sources") != std::string::npos);
  const double fraction = static_cast<double>(validation.size()) /
                          static_cast<double>(train.size() + validation.size());
  REQUIRE(fraction > 0.08);
  REQUIRE(fraction < 0.12);
}

}  // namespace
}  // namespace tessera
