// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

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

}  // namespace
}  // namespace tessera
