// SPDX-License-Identifier: Apache-2.0
// One tokenizer used by several threads, and its word cache.
#include <string>
#include <thread>
#include <vector>

#include "core/io/file.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

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
