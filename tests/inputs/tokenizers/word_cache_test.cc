// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/word_cache.h"

#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

Ids found(WordCache& cache, const std::string& word) {
  const WordCache::Key key = WordCache::key_of(word, 0, word.size());
  Ids ids(WordCache::kMostIds + 1);
  if (const size_t count = cache.find(key, ids.data())) {
    ids.resize(count);
    return ids;
  }
  const auto rare = cache.find_rare(word, key);
  return {rare.begin(), rare.end()};
}

void insert(WordCache& cache, const std::string& word, const Ids& ids) {
  cache.insert(word, WordCache::key_of(word, 0, word.size()), ids);
}

// Words that share bytes and lengths, so that keys differ in few bits.
std::string random_word(std::mt19937_64& random) {
  const size_t size = 1 + random() % (random() % 8 == 0 ? 90 : 20);
  std::string word(size, random() % 3 == 0 ? '\0' : 'a');
  for (int i = 0; i < 3; ++i) word[random() % size] = static_cast<char>(random());
  return word;
}

TEST_CASE("a cache of words has their ids or none") {
  WordCache cache;
  std::mt19937_64 random(1);
  std::map<std::string, Ids> words;
  for (int i = 0; i < 300'000; ++i) {
    const std::string word = random_word(random);
    const auto [known, is_new] = words.try_emplace(word);
    if (is_new) known->second.resize(1 + random() % 6, static_cast<int32_t>(i));
    const Ids before = found(cache, word);
    const bool is_right = before.empty() || before == known->second;
    REQUIRE(is_right);
    if (before.empty()) insert(cache, word, known->second);
    const bool is_kept = found(cache, word) == known->second;
    REQUIRE(is_kept);
  }
  int64_t kept = 0;
  for (const auto& [word, ids] : words) {
    const Ids now = found(cache, word);
    if (!now.empty() && now != ids) FAIL(word);
    kept += now.empty() ? 0 : 1;
  }
  REQUIRE(kept > std::ssize(words) / 2);
}

TEST_CASE("a cache of words gives back the memory of many ids") {
  WordCache cache;
  const Ids ids(4000, 7);
  for (int i = 0; i < 3000; ++i) insert(cache, std::to_string(i), ids);
  REQUIRE(found(cache, "0").empty());
  REQUIRE(found(cache, "2999") == ids);
  insert(cache, std::string(5000, 'x'), ids);  // Longer than the words that are kept.
  REQUIRE(found(cache, std::string(5000, 'x')).empty());
}

TEST_CASE("keys do not depend on the bytes after a word") {
  const std::string text = "word, and more text after it";
  const auto same = [](const WordCache::Key& a, const WordCache::Key& b) {
    return a.low == b.low && a.high == b.high && a.hash == b.hash;
  };
  for (size_t size = 1; size < text.size(); ++size)
    REQUIRE(
        same(WordCache::key_of(text, 0, size), WordCache::key_of(text.substr(0, size), 0, size)));
  REQUIRE(!same(WordCache::key_of("a", 0, 1), WordCache::key_of(std::string("a\0", 2), 0, 2)));
}

// Words of every length at every place, repeated so that most are in the cache.
std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {
      " the", " of",   "\n",       " '",   "'s", "don't", " 1234",    "é", " 中文", "ABC", " Abc",
      "  ",   "\n\n ", "////////", "\xff", "x",  " word", ", and so", "а", " \t",   "=",   "!?"};
  std::string text;
  for (uint64_t i = random() % 200; i > 0; --i) {
    const std::string& part = kParts[random() % kParts.size()];
    for (uint64_t j = random() % 20 == 0 ? random() % 60 : 1; j > 0; --j) text += part;
  }
  return text;
}

TEST_CASE("ids do not depend on what was encoded before, nor on threads") {
  for (const char* name : {"llama3.json", "o200k.json", "gpt2"}) {
    const std::string path = fmt::format(TESSERA_SOURCE_DIR "/tests/golden/tokenizers/{}", name);
    const auto used = make_tokenizer(path);
    const auto work = [&](uint64_t seed, std::vector<Ids>* all) {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 100; ++i) all->push_back(used->encode(random_text(random)));
    };
    std::vector<std::vector<Ids>> ids(3);
    std::vector<std::jthread> threads;
    for (auto& of_thread : ids) threads.emplace_back(work, &of_thread - ids.data(), &of_thread);
    threads.clear();
    for (size_t seed = 0; seed < ids.size(); ++seed) {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 100; ++i) {
        const std::string text = random_text(random);
        if (i % 10 != 0) continue;
        CAPTURE(name, seed, text);
        REQUIRE(make_tokenizer(path)->encode(text) == ids[seed][static_cast<size_t>(i)]);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
