// SPDX-License-Identifier: Apache-2.0
// Compares chunked encoding of long texts with the SentencePiece library on whole texts.
#include "inputs/tokenizers/sentence_piece.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/compiler.h"
#include "tests/support/skip.h"

namespace tessera {
namespace {

const std::string kFolder = TESSERA_SOURCE_DIR "/tests/golden/tokenizers/";

std::string length_and(const std::string& bytes) {
  REQUIRE(bytes.size() < 128);
  return static_cast<char>(bytes.size()) + bytes;
}

// Flags of the normalizer, in field order; later fields of a model override earlier ones.
struct Flags {
  bool adds_space = true;
  bool removes_extra_spaces = true;
  bool marks_spaces = true;
};

std::string with_flags(const std::string& model, const Flags& flags) {
  std::string normalizer;
  const auto add = [&](char field, bool flag) {
    normalizer += static_cast<char>(field << 3);
    normalizer += static_cast<char>(flag ? 1 : 0);
  };
  add(3, flags.adds_space);
  add(4, flags.removes_extra_spaces);
  add(5, flags.marks_spaces);
  return model + "\x1a" + length_and(normalizer);
}

// An integer field of the trainer.
std::string with_trainer(const std::string& model, int field, int value) {
  std::string trainer;
  const int tag = field << 3;
  if (tag >= 128) trainer += static_cast<char>(0x80 | (tag & 0x7f));
  trainer += static_cast<char>(tag >= 128 ? tag >> 7 : tag);
  trainer += static_cast<char>(value);
  return model + "\x12" + length_and(trainer);
}

// `type`: 1 for a normal piece, 4 for a user-defined one.
std::string with_piece(const std::string& model, const std::string& text, float score,
                       int type = 1) {
  std::string piece = "\x0a" + length_and(text) + "\x15";
  piece.append(reinterpret_cast<const char*>(&score), sizeof(score));
  piece += "\x18";
  piece += static_cast<char>(type);
  return model + "\x0a" + length_and(piece);
}

// `page`: the length of a tested text. In a unigram model, rounding decides between segmentations
// of equal score, more often in longer texts, so its page is short.
std::vector<std::string> golden_texts(size_t page) {
  const std::string path = kFolder + "bpe.golden.json";
  std::vector<std::string> texts;
  const Json golden = parse_json(read_file(path), path);
  for (const Json& each : golden.as_array())
    if (const Json* text = each.find("text")) texts.push_back(text->as_string());
  texts.push_back(read_file(TESSERA_SOURCE_DIR "/docs/graph.md").substr(0, page));
  texts.push_back("\xff a\xc3 \xe4\xb8 b  \xe2\x96\x81 \xe2\x96\x81");
  texts.push_back("\xe2\x96\x81\xe2\x96\x81  \xe2\x96\x81");
  return texts;
}

// The number of texts with different ids when chunked.
int differences(const std::string& model, size_t page = 6000) {
  const auto whole = make_sentence_piece_tokenizer("t.model", {{"tokenizer.model", model}});
  int found = 0;
  for (const size_t usual : {size_t{1}, size_t{9}, size_t{200}}) {
    const ChunkedSentencePiece cut(model, "t.model", {.usual = usual, .most = 4000});
    for (const std::string& text : golden_texts(page)) {
      std::vector<int32_t> ids = {7};
      cut.encode(text, &ids);
      REQUIRE(ids.front() == 7);
      ids.erase(ids.begin());
      if (ids != whole->encode(text)) {
        UNSCOPED_INFO("cut at " << usual << ": " << text.substr(0, 200));
        ++found;
      }
    }
  }
  return found;
}

std::vector<Flags> all_flags() {
  std::vector<Flags> all;
  for (const bool adds : {true, false})
    for (const bool removes : {true, false})
      for (const bool marks : {true, false}) all.push_back({adds, removes, marks});
  return all;
}

TEST_CASE("a chunked text has the ids of the whole text with BPE") {
  const std::string model = read_file(kFolder + "bpe.model");
  REQUIRE(differences(model, 60000) == 0);
  for (const Flags& flags : all_flags()) {
    CAPTURE(flags.adds_space, flags.removes_extra_spaces, flags.marks_spaces);
    REQUIRE(differences(with_flags(model, flags)) == 0);
  }
}

TEST_CASE("a chunked text has the ids of the whole text with a unigram model") {
  const std::string model = read_file(kFolder + "unigram.model");
  REQUIRE(differences(model) == 0);
  for (const Flags& flags : all_flags()) {
    CAPTURE(flags.adds_space, flags.removes_extra_spaces, flags.marks_spaces);
    REQUIRE(differences(with_flags(model, flags)) == 0);
  }
}

TEST_CASE("pieces with spaces inside, at the end or alone are not cut") {
  for (const std::string name : {"bpe.model", "unigram.model"}) {
    CAPTURE(name);
    std::string model = read_file(kFolder + name);
    for (const char* piece : {"e\xe2\x96\x81", "e\xe2\x96\x81t", ".\xe2\x96\x81The",
                              "\xe2\x96\x81\xe2\x96\x81", "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81"})
      model = with_piece(model, piece, -2.5f);
    model = with_piece(model, "of the", 0, 4);
    model = with_piece(model, "\xef\xbd\x81 b", 0, 4);  // User-defined pieces are not normalized.
    REQUIRE(differences(with_flags(model, {.removes_extra_spaces = false})) == 0);
    REQUIRE(differences(model) == 0);
    REQUIRE(differences(with_trainer(model, 24, 1)) == 0);  // treat_whitespace_as_suffix
  }
}

TEST_CASE("word and character models are cut at token ends") {
  const std::string model = read_file(kFolder + "unigram.model");
  for (const int type : {3, 4}) {
    CAPTURE(type);
    REQUIRE(differences(with_trainer(model, 3, type)) == 0);
  }
}

TEST_CASE("a run of unknown characters is one token, wherever it is cut") {
  const std::string model = read_file(kFolder + "unigram.model");
  std::string text = "a ";
  for (int i = 0; i < 5000; ++i) text += "\xe0\xb9\x81";
  text += " b";
  std::vector<int32_t> ids;
  ChunkedSentencePiece(model, "t.model", {.usual = 10, .most = 20}).encode(text, &ids);
  const auto whole = make_sentence_piece_tokenizer("t.model", {{"tokenizer.model", model}});
  REQUIRE(ids == whole->encode(text));
  REQUIRE(std::count(ids.begin(), ids.end(), 0) == 1);
}

TEST_CASE("a text without a good cut is cut at a character") {
  const std::string model = read_file(kFolder + "bpe.model");
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "\xe4\xb8\xad\xe4\xb8\xad-";
  const std::string joined = with_piece(
      with_piece(with_piece(model, "\xe4\xb8\xad\xe4\xb8\xad", -1.0f), "\xe4\xb8\xad-", -1.1f),
      "-\xe4\xb8\xad", -1.2f);
  const auto whole = make_sentence_piece_tokenizer("t.model", {{"tokenizer.model", joined}});
  std::vector<int32_t> ids;
  ChunkedSentencePiece(joined, "t.model", {.usual = 100, .most = 1000}).encode(text, &ids);
  REQUIRE(whole->decode(ids) == text);
  const auto difference = std::ssize(ids) - std::ssize(whole->encode(text));
  REQUIRE(std::abs(difference) <= 2 * 30);
}

int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return 1024 * std::atoll(line.c_str() + name.size() + 1);
  return 0;
}

TEST_CASE("memory for a long text does not grow with its length") {
  if (kSanitized) return skip_test("a sanitizer keeps memory that was freed");
  std::string text;
  const std::string page = read_file(TESSERA_SOURCE_DIR "/docs/graph.md");
  while (text.size() < size_t{2} << 20) text += page;
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (const char* name : {"bpe.model", "unigram.model"}) {
    CAPTURE(name);
    const auto tokenizer = make_tokenizer(kFolder + name);
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    tokenizer->encode(text.substr(0, size_t{300} << 10),
                      &ids);  // Makes allocations that happen only once.
    ids.assign(text.size(), 0);
    ids.clear();
    std::ofstream("/proc/self/clear_refs") << "5";  // Resets the peak.
    const int64_t before = status_bytes("VmRSS");
    if (before == 0 || status_bytes("VmHWM") > before + (4 << 20))
      return skip_test("this system does not tell peaks of memory");
    tokenizer->encode(text, &ids);
    REQUIRE(status_bytes("VmHWM") < before + (16 << 20));
    REQUIRE(ids.size() > text.size() / 10);
  }
}

}  // namespace
}  // namespace tessera
