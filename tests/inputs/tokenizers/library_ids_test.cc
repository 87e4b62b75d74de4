// SPDX-License-Identifier: Apache-2.0
// Compares splits at every code point, and on texts of trials, with those of Hugging Face's
// tokenizers library, recorded by tests/golden/make_tokenizer_probes.py.
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "inputs/tokenizers/normalizer.h"
#include "inputs/tokenizers/pre_tokenizer.h"
#include "inputs/tokenizers/unicode.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/golden/tokenizers/";

Json golden(const std::string& name) {
  return parse_json(read_file(kGoldens + name), kGoldens + name);
}

// The tokenizer as a file again, because Json has no writer.
std::string json_text(const Json& json) {
  if (json.is_string()) return json_quoted(json.as_string());
  if (json.is_bool()) return json.as_bool() ? "true" : "false";
  if (json.is_integer()) return std::to_string(json.as_integer());
  std::string text;
  if (json.is_array()) {
    for (const Json& each : json.as_array()) text += (text.empty() ? "" : ",") + json_text(each);
    return "[" + text + "]";
  }
  for (const auto& [name, value] : json.as_object())
    text += (text.empty() ? "" : ",") + json_quoted(name) + ":" + json_text(value);
  return "{" + text + "}";
}

TEST_CASE("patterns on the characters of trials give the library's ids") {
  const Json trials = golden("trials.json");
  REQUIRE(trials.as_array().size() == 14);
  for (const Json& trial : trials.as_array()) {
    const auto tokenizer =
        tokenizer_of_files("t", {{"tokenizer.json", json_text(trial.at("tokenizer"))}});
    std::vector<int32_t> ids;
    for (const Json& id : trial.at("ids").as_array())
      ids.push_back(static_cast<int32_t>(id.as_integer()));
    INFO(trial.at("name").as_string());
    REQUIRE(tokenizer->encode(trial.at("text").as_string()) == ids);
  }
}

// CRC-32 of zlib.
uint32_t sum_of(const std::vector<int32_t>& bytes) {
  uint32_t sum = ~0u;
  for (const int32_t byte : bytes) {
    sum ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (0xedb88320u & (0u - (sum & 1u)));
  }
  return ~sum;
}

constexpr int32_t kBlock = 0x4000;

std::string text_of_block(int32_t block) {
  std::string text;
  for (int32_t code = block * kBlock; code < (block + 1) * kBlock; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    text += 'a';
    append_utf8(code, &text);
    text += "a ";
  }
  return text;
}

// Compares every `every`-th probe on these blocks of code points.
void compare_probes(size_t every, const std::vector<int32_t>& blocks) {
  const Json probes = golden("probes.json");
  const JsonArray& all = probes.at("probes").as_array();
  REQUIRE(all.size() >= 30);
  for (size_t i = 0; i < all.size(); i += every) {
    const std::string step = json_text(all[i].at("pre_tokenizer"));
    const auto tokenizer =
        tokenizer_of_files("t", {{"tokenizer.json", R"({"pre_tokenizer":)" + step + R"(,"model":)" +
                                                        json_text(probes.at("model")) + "}"}});
    std::istringstream words(all[i].at("sums").as_string());
    std::vector<std::string> sums;
    for (std::string word; words >> word;) sums.push_back(word);
    REQUIRE(sums.size() == 0x110000 / kBlock);
    for (const int32_t block : blocks) {
      const std::string sum =
          fmt::format("{:08x}", sum_of(tokenizer->encode(text_of_block(block))));
      INFO(step << " on code points from " << block * kBlock);
      REQUIRE(sum == sums[static_cast<size_t>(block)]);
    }
  }
}

// Blocks with letters, numbers and marks of Unicode 15 and 16.
TEST_CASE("splits at the first code points are those of the library") { compare_probes(4, {0, 4}); }

TEST_CASE("splits at every code point are those of the library", "[full]") {
  std::vector<int32_t> blocks;
  for (int32_t block = 0; block < 0x110000 / kBlock; ++block) blocks.push_back(block);
  compare_probes(1, blocks);
}

TEST_CASE("normalizers know the characters that the library's versions of Unicode have") {
  const auto normalized = [](const std::string& type, const std::string& text) {
    std::string storage;
    bool has_beginning = true;
    const Json json = parse_json("{\"type\": \"" + type + "\"}", "t");
    return std::string(make_normalizer(json)->apply(text, &storage, &has_beginning));
  };
  // Unicode 17 has a lower case of U+A7CE, Unicode 16 of U+10D50 and U+1C89.
  REQUIRE(normalized("Lowercase", "\xea\x9f\x8e \xf0\x90\xb5\x90 \xe1\xb2\x89") ==
          "\xea\x9f\x8f \xf0\x90\xb5\xb0 \xe1\xb2\x8a");
  // The normal forms of the library are those of Unicode 9: U+0898 (Unicode 14) is not a mark,
  // U+32FF (Unicode 12.1) has no decomposition, and nothing composes to U+11938 (Unicode 13).
  REQUIRE(normalized("NFC", "a\xe0\xa2\x98\xcc\x81\xcc\x96") == "a\xe0\xa2\x98\xcc\x96\xcc\x81");
  REQUIRE(normalized("NFC", "a\xcc\x81\xe0\xa2\x98\xcc\x96") == "\xc3\xa1\xe0\xa2\x98\xcc\x96");
  REQUIRE(normalized("NFKC", "\xe3\x8b\xbf") == "\xe3\x8b\xbf");
  REQUIRE(normalized("NFC", "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0") ==
          "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0");
}

// Letters, marks of several classes, parts and wholes of compositions, unknown and invalid ones.
std::string random_characters(std::mt19937_64& random) {
  static const std::vector<std::pair<int32_t, int32_t>> kRanges = {
      {0x20, 0x7e},     {0xa0, 0x17f},    {0x300, 0x345},   {0x1e00, 0x1eff},  {0x900, 0xdff},
      {0x1100, 0x11ff}, {0xac00, 0xac40}, {0x4e00, 0x4e20}, {0x300, 0x3ff},    {0xfb00, 0xfb4f},
      {0x2000, 0x21ff}, {0x3041, 0x30ff}, {0x897, 0x8a0},   {0xf900, 0xf920},  {0x1d15e, 0x1d164},
      {0xff01, 0xffa0}, {0xe000, 0xe010}, {0xf71, 0xf84},   {0x11930, 0x11938}};
  std::string text;
  for (uint64_t i = random() % 12; i > 0; --i) {
    const auto [first, last] = kRanges[random() % kRanges.size()];
    append_utf8(first + static_cast<int32_t>(random() % static_cast<uint64_t>(last - first + 1)),
                &text);
    if (random() % 40 == 0) text += '\xff';
  }
  return text;
}

TEST_CASE("normal forms agree with each other and with themselves") {
  const auto normalizer = [](const std::string& type) {
    return *make_normalizer(parse_json("{\"type\": \"" + type + "\"}", "t"));
  };
  const Normalizer nfc = normalizer("NFC"), nfd = normalizer("NFD");
  const Normalizer nfkc = normalizer("NFKC"), nfkd = normalizer("NFKD");
  const auto applied = [](const Normalizer& form, const std::string& text) {
    std::string storage;
    bool has_beginning = true;
    return std::string(form.apply(text, &storage, &has_beginning));
  };
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = random_characters(random);
    const std::string composed = applied(nfc, text), parts = applied(nfd, text);
    const bool is_right = applied(nfc, parts) == composed && applied(nfd, composed) == parts &&
                          applied(nfc, composed) == composed && applied(nfd, parts) == parts &&
                          applied(nfkc, text) == applied(nfc, applied(nfkd, text)) &&
                          applied(nfkd, parts) == applied(nfkd, text) &&
                          applied(nfc, text + "\n" + parts) == composed + "\n" + composed;
    CAPTURE(text, composed, parts);
    REQUIRE(is_right);
  }
}

using Characters = std::vector<std::string>;

// Runs of one character. All text is kept, unless the step removes space.
void split_long_runs(const Json& json, size_t size, const Characters& characters) {
  const PreTokenizer pre_tokenizer(json);
  const bool removes_space = json.at("type").as_string().starts_with("Whitespace");
  for (const std::string& character : characters) {
    std::string text;
    while (text.size() < size) text += character;
    text += "x y";
    size_t bytes = 0;
    pre_tokenizer.for_each_word({text, true}, [&](std::string_view word) { bytes += word.size(); });
    INFO(pre_tokenizer.description() << " on " << character);
    REQUIRE((bytes == text.size() || (removes_space && bytes >= 2)));
  }
}

// The first known pre-tokenizers of probes.json, and DeepSeek 3.
void split_long_runs(size_t size, const Characters& characters) {
  constexpr size_t kFirstGeneric = 10;
  constexpr size_t kDeepSeek3 = 12;
  const Json probes = golden("probes.json");
  const JsonArray& all = probes.at("probes").as_array();
  for (size_t i = 0; i <= kDeepSeek3; ++i)
    if (i < kFirstGeneric || i == kDeepSeek3)
      split_long_runs(all[i].at("pre_tokenizer"), size, characters);
}

TEST_CASE("well-known pre-tokenizers split 65,000 equal characters") {
  split_long_runs(
      65000, {" ", "\t", "\n", "\r", "a", "A", "1", "!", "'", "/", "\x01", "\xc3\xa9", "\xcc\x81",
              "\xc2\xa0", "\xe4\xb8\xad", "\xe3\x80\x82", "\xf0\x9f\x98\x80", "\xca\xb0", "\xff"});
  // DeepSeek 1 and 2 have five patterns, most of them without a scanner.
  split_long_runs(golden("deepseek.json").at("pre_tokenizer"), 65000, {" ", "a", "\xe4\xb8\xad"});
}

TEST_CASE("well-known pre-tokenizers split 20 MB of one character in linear time", "[full]") {
  split_long_runs(20 << 20, {" ", "\n", "A", "1", "!", "\xcc\x81", "\xe4\xb8\xad", "\xff"});
  split_long_runs(golden("deepseek.json").at("pre_tokenizer"), 20 << 20, {" ", "\xe4\xb8\xad"});
}

}  // namespace
}  // namespace tessera
