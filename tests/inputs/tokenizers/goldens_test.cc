// SPDX-License-Identifier: Apache-2.0
// Compares ids with those of `tokenizers`, `tiktoken` and `sentencepiece`, recorded by
// tests/golden/make_tokenizers.py.
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

const std::filesystem::path& folder() {
  static const std::filesystem::path path = TESSERA_SOURCE_DIR "/tests/golden/tokenizers";
  return path;
}

std::string of_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  int bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<int>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count);
    bits &= (1 << count) - 1;
  }
  return bytes;
}

std::vector<int32_t> ids_at(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

std::unique_ptr<Tokenizer> tokenizer_of_golden(const std::string& name) {
  for (const char* extension : {"", ".json", ".model"})
    if (std::filesystem::exists(folder() / (name + extension)))
      return make_tokenizer((folder() / (name + extension)).string());
  FAIL("no tokenizer for " << name);
  return nullptr;
}

// Returns the number of texts compared.
int64_t compare(const std::string& name) {
  const auto tokenizer = tokenizer_of_golden(name);
  const auto again = tokenizer_of_definition(tokenizer->name(), tokenizer->definition());
  REQUIRE(again->fingerprint() == tokenizer->fingerprint());
  const std::string path = (folder() / (name + ".golden.json")).string();
  int64_t count = 0;
  const Json golden = parse_json(read_file(path), path);
  for (const Json& each : golden.as_array()) {
    const Json* bytes = each.find("bytes");
    const std::string text =
        bytes != nullptr ? of_base64(bytes->as_string()) : each.at("text").as_string();
    INFO(name << ": " << text);
    const std::vector<int32_t> ids = ids_at(each.at("ids"));
    REQUIRE(tokenizer->encode(text) == ids);
    REQUIRE(again->encode(text) == ids);
    if (const Json* special = each.find("with_special"))
      REQUIRE(tokenizer->encode_with_special(text) == ids_at(*special));
    if (const Json* decoded = each.find("decoded"))
      REQUIRE(tokenizer->decode(ids) == decoded->as_string());
    for (const int32_t id : ids) REQUIRE(id < tokenizer->vocab_size());
    ++count;
  }
  return count;
}

TEST_CASE("byte-level tokenizers give their libraries' ids") {
  REQUIRE(compare("gpt2") > 100);
  REQUIRE(compare("llama3") > 100);
  REQUIRE(compare("qwen2") > 100);
  REQUIRE(compare("o200k") > 100);
  REQUIRE(compare("deepseek") > 100);
}

TEST_CASE("added tokens take adjacent space and words as configured") {
  REQUIRE(compare("added") > 100);
}

TEST_CASE("character tokenizers give their libraries' ids") {
  REQUIRE(compare("llama2") > 100);
  REQUIRE(compare("clip") > 100);
  REQUIRE(compare("metaspace") > 100);
}

TEST_CASE("SentencePiece models give their library's ids") {
  REQUIRE(compare("unigram") > 100);
  REQUIRE(compare("bpe") > 100);
}

TEST_CASE("any bytes are decoded to themselves") {
  for (const char* name : {"gpt2", "llama3", "o200k", "deepseek"}) {
    const auto tokenizer = tokenizer_of_golden(name);
    for (const std::string& text :
         {std::string("\0\xff\xc3 \xed\xa0\x80", 8), std::string("caf\xc3\xa9\r\n\t \xe2\x80\x83x"),
          std::string()}) {
      const std::vector<int32_t> ids = tokenizer->encode(text);
      REQUIRE(tokenizer->decode(ids) == text);
      int64_t bytes = 0;
      for (const int32_t id : ids) bytes += tokenizer->byte_length(id);
      REQUIRE(bytes == static_cast<int64_t>(text.size()));
    }
  }
}

TEST_CASE("start and end tokens are those named in the files") {
  const auto llama3 = tokenizer_of_golden("llama3");
  REQUIRE(llama3->start_id() == llama3->id_of("<|begin_of_text|>"));
  REQUIRE(llama3->end_id() == llama3->id_of("<|end_of_text|>"));
  REQUIRE_FALSE(llama3->may_be_drawn(llama3->start_id()));
  const auto gpt2 = tokenizer_of_golden("gpt2");
  REQUIRE(gpt2->start_id() == gpt2->id_of("<|endoftext|>"));
  const auto llama2 = tokenizer_of_golden("llama2");
  REQUIRE(llama2->start_id() == llama2->id_of("<s>"));
  REQUIRE(llama2->end_id() == llama2->id_of("</s>"));
  REQUIRE(llama2->byte_length(*llama2->id_of("<0x0A>")) == 1);
  const auto unigram = tokenizer_of_golden("unigram");
  REQUIRE(unigram->start_id() == unigram->id_of("<s>"));
  REQUIRE(unigram->end_id() == unigram->id_of("</s>"));
  REQUIRE(unigram->encode_with_special("<s>a</s>").front() == unigram->start_id());
  REQUIRE(unigram->encode_with_special("<s>a</s>").back() == unigram->end_id());
  const auto deepseek = tokenizer_of_golden("deepseek");
  REQUIRE(deepseek->start_id() == 0);
  REQUIRE_FALSE(deepseek->end_id().has_value());
}

}  // namespace
}  // namespace tessera
