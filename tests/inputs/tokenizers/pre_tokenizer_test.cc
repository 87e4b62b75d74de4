// SPDX-License-Identifier: Apache-2.0
// Compares the hand-written scanners with Oniguruma on their patterns.
#include "inputs/tokenizers/pre_tokenizer.h"

#include <random>
#include <string>
#include <vector>

#include <hwy/targets.h>

#include "inputs/tokenizers/pattern.h"
#include "inputs/tokenizers/unicode.h"
#include "inputs/tokenizers/word_scanner.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
    R"([\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::string kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+)"
    R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kDeepSeek =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Words scanned(const std::string& expression, const std::string& text) {
  const auto known = known_pattern(expression);
  REQUIRE(known.has_value());
  Words words;
  WordScanner(*known).for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words matched(const Matcher& pattern, const std::string& text) {
  Words words;
  size_t last = 0;
  const auto add = [&](size_t end) {
    if (end > last) words.push_back(text.substr(last, end - last));
    last = end;
  };
  pattern.find(text, [&](size_t begin, size_t end) {
    add(begin);  // Text between matches is a word.
    add(end);
  });
  add(text.size());
  return words;
}

TEST_CASE("words are those of the known tokenizers") {
  const std::string text = "I'm here,  it'S 12345\n\n  ok  ";
  REQUIRE(scanned(kGpt2, text) ==
          Words{"I", "'m", " here", ",", " ", " it", "'", "S", " 12345", "\n\n ", " ok", "  "});
  REQUIRE(scanned(kCl100k, text) == Words{"I", "'m", " here", ",", " ", " it", "'S", " ", "123",
                                          "45", "\n\n", " ", " ok", "  "});
  REQUIRE(scanned(kQwen2, "a 12") == Words{"a", " ", "1", "2"});
  REQUIRE(scanned(kO200k, "HTTPServer isn't McDonald //\n/") ==
          Words{"HTTPServer", " isn't", " Mc", "Donald", " //\n/"});
}

// Characters of every class that the patterns distinguish, and invalid bytes.
std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {"a",
                                                  "b",
                                                  "s",
                                                  "S",
                                                  "T",
                                                  "LL",
                                                  "re",
                                                  "'",
                                                  "'",
                                                  " ",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\r",
                                                  "\t",
                                                  "1",
                                                  "23",
                                                  ".",
                                                  "/",
                                                  "!",
                                                  "\xc3\xa9",
                                                  "\xc3\x89",
                                                  "\xcc\x81",
                                                  "\xe4\xb8\xad",
                                                  "\xca\xb0",
                                                  "\xc7\x85",
                                                  "\xc2\xa0",
                                                  "\xe3\x80\x80",
                                                  "\xe2\x85\xa7",
                                                  "\xc2\xbd",
                                                  "\xf0\x9f\x98\x80",
                                                  "\xe2\x80\x8d",
                                                  "\xe1\xa0\x8e",
                                                  "\xc5\xbf",
                                                  "\xc2\x85",
                                                  "\xff",
                                                  "\xc3",
                                                  "\xe2\x80",
                                                  "\xed\xa0\x80"};
  std::string text;
  const size_t count = random() % 24;
  for (size_t i = 0; i < count; ++i) text += kParts[random() % kParts.size()];
  return text;
}

// Several windows of mostly ASCII text: runs of every length that end at every place of a window,
// contractions, and sometimes another character.
std::string random_ascii_text(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {"'s",
                                                  "'S",
                                                  "'t",
                                                  "'ll",
                                                  "'Ve",
                                                  "'m",
                                                  "'re",
                                                  "'",
                                                  "aB",
                                                  "Ab",
                                                  "x",
                                                  "Q",
                                                  " ",
                                                  " ",
                                                  " ",
                                                  "\n",
                                                  "\r\n",
                                                  "\n/",
                                                  "\t",
                                                  "\v",
                                                  "\x1c",
                                                  "7",
                                                  "42",
                                                  ".",
                                                  "/",
                                                  "!",
                                                  "_",
                                                  "\x7f",
                                                  std::string(1, 0)};
  std::string text;
  const size_t size = 20 + random() % 300;
  const uint64_t rare = 40 + random() % 1000;
  while (text.size() < size) {
    const std::string& part = kParts[random() % kParts.size()];
    const uint64_t times = random() % 6 != 0 ? 1 : 1 + random() % (random() % 6 != 0 ? 9 : 90);
    for (uint64_t i = 0; i < times; ++i) text += part;
    if (random() % rare < 9) text += random_text(random);
  }
  return text;
}

void compare(int64_t count) {
  for (const std::string& expression :
       {kGpt2, kCl100k, kQwen2, kO200k, kQwen35, kTekken, kDeepSeek}) {
    const Matcher pattern = pattern_matcher(expression, "test");
    std::mt19937_64 random(1);
    for (int64_t i = 0; i < count; ++i) {
      const std::string text = i % 2 == 0 ? random_text(random) : random_ascii_text(random);
      const Words words = scanned(expression, text);
      if (words != matched(pattern, text)) {
        INFO(expression << " on " << text);
        REQUIRE(words == matched(pattern, text));
      }
    }
  }
}

TEST_CASE("scanners and Oniguruma find the same words with every set of vector instructions") {
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    CAPTURE(hwy::TargetName(targets & -targets));
    compare(2000);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST_CASE("scanners and Oniguruma find the same words in two million texts", "[full]") {
  compare(250000);
}

TEST_CASE("every character has one class of letter, number, space and other") {
  const UnicodeClasses& classes = UnicodeClasses::get();
  const Matcher letters = pattern_matcher(R"(\p{L})", "test");
  const Matcher numbers = pattern_matcher(R"(\p{N})", "test");
  const Matcher spaces = pattern_matcher(R"(\s)", "test");
  std::string text;
  for (int32_t code = 0; code < 0x20000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    append_utf8(code, &text);
  }
  const auto count = [&](const Matcher& pattern) {
    int64_t found = 0;
    pattern.find(text, [&](size_t, size_t) { ++found; });
    return found;
  };
  int64_t own_letters = 0;
  int64_t own_numbers = 0;
  int64_t own_spaces = 0;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    const uint8_t kind = classes.at(text, at, &length);
    own_letters += (kind & unicode_class::kLetter) != 0 ? 1 : 0;
    own_numbers += (kind & unicode_class::kNumber) != 0 ? 1 : 0;
    own_spaces += (kind & unicode_class::kSpace) != 0 ? 1 : 0;
    at += length;
  }
  REQUIRE(own_spaces == count(spaces));
  REQUIRE(own_spaces == 25);
  REQUIRE(own_letters == count(letters));
  REQUIRE(own_numbers == count(numbers));
}

}  // namespace
}  // namespace tessera
