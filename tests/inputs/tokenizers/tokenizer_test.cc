// SPDX-License-Identifier: Apache-2.0
// Tokenizers by name and path, their definitions, and one tokenizer used by several threads.
#include <string>
#include <thread>
#include <vector>

#include "core/io/file.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

// A small GPT-2: every byte, then " t", "he", " the", and the end of documents.
constexpr const char* kMerges = "#version: 0.2\n\xc4\xa0 t\nh e\n\xc4\xa0t he\n";

std::string vocabulary_of_bytes() {
  std::string text = "{";
  int id = 0;
  const auto add = [&](const std::string& token) {
    text += fmt::format("{}\"{}\": {}", id == 0 ? "" : ", ", token, id);
    ++id;
  };
  for (int byte = '!'; byte <= '~'; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    add(byte == '"' || byte == '\\' ? "\\" + raw : raw);
  }
  for (int code = 0xa1; code <= 0x143; ++code)
    if (code != 0xad) add(fmt::format("\\u{:04x}", code));
  for (const char* token : {"\xc4\xa0t", "he", "\xc4\xa0the", "<|endoftext|>"}) add(token);
  return text + "}";
}

TEST_CASE("GPT-2's two files make a tokenizer, under either of their names") {
  const TemporaryDirectory directory;
  write_bytes(directory / "a/vocab.json", vocabulary_of_bytes());
  write_bytes(directory / "a/merges.txt", kMerges);
  write_bytes(directory / "b/encoder.json", vocabulary_of_bytes());
  write_bytes(directory / "b/vocab.bpe", kMerges);
  const auto a = make_tokenizer((directory / "a").string());
  const auto b = make_tokenizer((directory / "b/encoder.json").string());
  REQUIRE(a->fingerprint() == b->fingerprint());
  REQUIRE(a->vocab_size() == 260);
  const int32_t end = *a->id_of("<|endoftext|>");
  REQUIRE(end == 259);
  REQUIRE(a->end_id() == end);
  REQUIRE(a->start_id() == end);
  REQUIRE(a->may_be_drawn(end));
  REQUIRE(a->byte_length(end) == 0);
  REQUIRE(a->byte_length(258) == 4);
  const std::string text = "The the\xff <|endoftext|>";
  REQUIRE(a->decode(a->encode(text)) == text);
  REQUIRE(a->encode("the the") == std::vector<int32_t>{*a->id_of("t"), 257, 258});
  REQUIRE(a->encode_with_special("<|endoftext|> the") == std::vector<int32_t>{end, 258});
  REQUIRE(a->encode("<|endoftext|>").size() > 1);

  const auto again = tokenizer_of_definition("a", a->definition());
  REQUIRE(again->fingerprint() == a->fingerprint());
  REQUIRE(again->encode(text) == a->encode(text));
}

// A folder with RoBERTa's form of GPT-2's files, whose "<|endoftext|>" is not used.
void write_roberta(const TemporaryDirectory& directory) {
  std::string vocabulary = vocabulary_of_bytes();
  vocabulary.insert(vocabulary.rfind('}'), R"(,"<s>":260,"</s>":261,"<pad>":262)");
  write_bytes(directory / "vocab.json", vocabulary);
  write_bytes(directory / "merges.txt", kMerges);
}

TEST_CASE("the files beside a vocabulary name its start and end tokens") {
  const TemporaryDirectory directory;
  write_roberta(directory);
  const auto ends = [&](int32_t start, int32_t end) {
    const auto tokenizer = make_tokenizer((directory / "vocab.json").string());
    const auto again = tokenizer_of_definition("again", tokenizer->definition());
    REQUIRE(tokenizer->start_id() == start);
    REQUIRE(tokenizer->end_id() == end);
    REQUIRE(again->start_id() == start);
    REQUIRE(again->end_id() == end);
    REQUIRE(again->fingerprint() == tokenizer->fingerprint());
    REQUIRE(tokenizer->byte_length(261) == 0);
  };
  ends(260, 261);
  write_bytes(directory / "config.json", R"({"eos_token_id": [262, 1], "rope_theta": NaN})");
  ends(260, 262);
  write_bytes(directory / "special_tokens_map.json",
              R"({"bos_token": {"content": "</s>"}, "eos_token": "</s>"})");
  ends(261, 261);
  write_bytes(directory / "tokenizer_config.json",
              R"({"eos_token": "<pad>", "model_max_length": 1000000000000000019884624838656})");
  ends(261, 262);
}

TEST_CASE("a tokenizer.json ends documents with the token of the files beside it") {
  const TemporaryDirectory directory;
  write_bytes(directory / "tokenizer.json",
              R"({"added_tokens": [{"id": 2, "content": "<end>", "special": true}], "model": )"
              R"({"type": "BPE", "vocab": {"a": 0, "</s>": 1}, "merges": []}})");
  const auto end = [&] { return make_tokenizer(directory.path().string())->end_id(); };
  REQUIRE_FALSE(end().has_value());
  write_bytes(directory / "generation_config.json", R"({"eos_token_id": 2})");
  REQUIRE(end() == 2);
  write_bytes(directory / "special_tokens_map.json", R"({"eos_token": "</s>"})");
  REQUIRE(end() == 1);
  write_bytes(directory / "tokenizer_config.json", R"({"eos_token": {"content": "<end>"}})");
  REQUIRE(end() == 2);
}

TEST_CASE("an unknown tokenizer name is refused with suggestions") {
  REQUIRE_THROWS_WITH(make_tokenizer("byte"),
                      "unknown tokenizer 'byte': expected 'bytes', a file or a directory; did you "
                      "mean 'bytes'?");
  const TemporaryDirectory directory;
  REQUIRE_THROWS_WITH(make_tokenizer(directory.path().string()), Contains("no tokenizer found"));
  write_bytes(directory / "vocab.json", "{}");
  REQUIRE_THROWS_WITH(make_tokenizer((directory / "vocab.json").string()),
                      Contains("has two files") && Contains("only vocab.json was found"));
  write_bytes(directory / "x.txt", "{}");
  REQUIRE_THROWS_WITH(make_tokenizer((directory / "x.txt").string()),
                      Contains("is not a tokenizer"));
}

TEST_CASE("a damaged definition is refused") {
  const std::string good = definition_of_files({{"vocab.json", "{}"}, {"merges.txt", ""}});
  REQUIRE(files_of_definition(good).at("vocab.json") == "{}");
  for (size_t length = 0; length < good.size(); ++length)
    REQUIRE_THROWS_AS(files_of_definition(good.substr(0, length)), Error);
  REQUIRE_THROWS_WITH(tokenizer_of_definition("x", "nonsense"),
                      "x: a tokenizer's definition is damaged");
}

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/golden/tokenizers/";

TEST_CASE("threads that share a tokenizer get the ids of a single thread") {
  const std::string text = read_file(TESSERA_SOURCE_DIR "/docs/formats.md");
  for (const char* name : {"gpt2", "qwen2.json", "deepseek.json", "unigram.model"}) {
    const auto tokenizer = make_tokenizer(kGoldens + name);
    const std::vector<int32_t> expected = tokenizer->encode(text);
    std::vector<std::vector<int32_t>> found(4);
    {
      std::vector<std::jthread> threads;
      for (auto& ids : found)
        threads.emplace_back([&] {
          for (int round = 0; round < 3; ++round) ids = tokenizer->encode(text);
        });
    }
    for (const auto& ids : found) REQUIRE(ids == expected);
  }
}

TEST_CASE("cached and evicted words keep their ids") {
  // More words than the cache holds.
  const auto tokenizer = make_tokenizer(kGoldens + "gpt2");
  std::string text;
  for (uint32_t i = 0; i < 60000; ++i) {
    std::string word;
    for (uint32_t rest = i * 2654435761u; rest > 0; rest /= 26)
      word += static_cast<char>('a' + rest % 26);
    text += " " + word;
  }
  const std::vector<int32_t> first = tokenizer->encode(text);
  REQUIRE(tokenizer->encode(text) == first);
  REQUIRE(make_tokenizer(kGoldens + "gpt2")->encode(text) == first);
  REQUIRE(tokenizer->decode(first) == text);
}

TEST_CASE("words around the longest cached length") {
  const auto tokenizer = make_tokenizer(kGoldens + "gpt2");
  const std::string letters = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop";
  for (size_t length = 1; length < letters.size(); ++length) {
    const std::vector<int32_t> ids = tokenizer->encode(letters.substr(0, length));
    REQUIRE(tokenizer->encode(letters.substr(0, length)) == ids);
    REQUIRE(tokenizer->decode(ids) == letters.substr(0, length));
  }
}

}  // namespace

}  // namespace tessera
