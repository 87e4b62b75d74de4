// SPDX-License-Identifier: Apache-2.0
// Untrusted tokenizer files: any file is refused with a message or works.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "inputs/tokenizers/pattern.h"
#include "inputs/tokenizers/sentence_piece.h"
#include "inputs/tokenizers/tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/golden/tokenizers/";

// A tokenizer.json of characters with these members replaced.
std::string file_of(const std::string& model_members, const std::string& members = "") {
  return "{" + members + R"("model": {"type": "BPE", )" + model_members + "}}";
}

std::unique_ptr<Tokenizer> read(const std::string& json) {
  return tokenizer_of_files("t.json", {{"tokenizer.json", json}});
}

const std::string kVocabulary = R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])";

TEST_CASE("an unsupported feature is named") {
  const auto with = [](const std::string& members) { return file_of(kVocabulary, members + ","); };
  REQUIRE_THROWS_WITH(read(with(R"("normalizer": {"type": "BertNormalizer"})")),
                      Contains("t.json: normalizer: a normalizer of type 'BertNormalizer' is not "
                               "supported; supported are: NFC"));
  REQUIRE_THROWS_WITH(read(with(R"("pre_tokenizer": {"type": "UnicodeScripts"})")),
                      Contains("a pre-tokenizer of type 'UnicodeScripts' is not supported"));
  REQUIRE_THROWS_WITH(read(with(R"("decoder": {"type": "CTC"})")),
                      Contains("a decoder of type 'CTC' is not supported"));
  REQUIRE_THROWS_WITH(read(R"({"model": {"type": "WordPiece", "vocab": {}}})"),
                      "t.json: model.type is 'WordPiece', only BPE is supported");
  REQUIRE_THROWS_WITH(read(R"({"model": {"type": "Unigram", "vocab": []}})"),
                      Contains("if it has a SentencePiece model (*.model), use that"));
  REQUIRE_THROWS_WITH(read(file_of(kVocabulary + R"(, "dropout": 0.1)")), Contains("BPE dropout"));
  REQUIRE_THROWS_WITH(read(with(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [)"
                                R"({"type": "ByteLevel"}, {"type": "ByteLevel"}]})")),
                      Contains("pretokenizers[1]: 'ByteLevel' after ByteLevel is not supported"));
}

TEST_CASE(
    "tokenizer.model is read only if the tokenizer.json beside it has a model of type Unigram") {
  const TemporaryDirectory directory;
  write_bytes(directory / "tokenizer.model", read_file(kGoldens + "bpe.model"));
  const auto tokenizer_of = [&](const std::string& json) {
    write_bytes(directory / "tokenizer.json", json);
    return make_tokenizer(directory.path().string());
  };
  const int64_t model_size = make_tokenizer(kGoldens + "bpe.model")->vocab_size();
  REQUIRE(tokenizer_of(R"({"model": {"type" : "Unigram"}})")->vocab_size() == model_size);
  // These words do not matter elsewhere.
  REQUIRE(tokenizer_of(file_of(kVocabulary, R"("notes": {"type": "Unigram"},)"))->vocab_size() ==
          3);
  for (const char* json : {"[]", "{}", R"({"model": "Unigram"})", R"({"model": {"type": 1}})"})
    REQUIRE_THROWS_AS(tokenizer_of(json), Error);
  // Long runs of spaces would overflow the stack of a recursive regular-expression engine.
  REQUIRE_THROWS_AS(tokenizer_of("{\"type\"" + std::string(300000, ' ') + ":1}"), Error);
  REQUIRE_THROWS_WITH(tokenizer_of("{"), Contains("tokenizer.json"));
}

TEST_CASE("an inconsistent vocabulary is reported") {
  const auto refuses = [](const std::string& model, const std::string& message) {
    REQUIRE_THROWS_WITH(read(file_of(model)), Contains(message));
  };
  refuses(R"("merges": [])", "t.json: model lacks 'vocab'");
  refuses(R"("vocab": {}, "merges": [])", "the vocabulary is empty");
  refuses(R"("vocab": {"a": 0, "a": 1}, "merges": [])", "the vocabulary has 'a' twice");
  refuses(R"("vocab": {"a": 3, "b": 3}, "merges": [])", "id 3 twice: 'a' and 'b'");
  refuses(R"("vocab": {"a": -1}, "merges": [])",
          "model.vocab.a is -1, expected an id of 0 or more");
  refuses(R"("vocab": {"a": 2000000000}, "merges": [])", "id 2000000000 is far larger than");
  refuses(R"("vocab": {"a": 99999999999}, "merges": [])", "expected an id of 0 or more");
  refuses(R"("vocab": {"a": 1.5}, "merges": [])", "model.vocab.a is a number, expected a whole");
  refuses(R"("vocab": {"a": 0, "b": 1}, "merges": ["a b"])", "needs the token 'ab'");
  refuses(R"("vocab": {"a": 0, "ab": 1}, "merges": ["a b"])", "needs the token 'b'");
  refuses(R"("vocab": {"a": 0}, "merges": ["aa"])", "expected two tokens with a space between");
  refuses(R"("vocab": {"a": 0}, "merges": [["a"]])", "has 1 tokens, expected 2");
  refuses(R"("vocab": {"a": 0}, "merges": [7])", "model.merges[0] is a whole number");
  refuses(R"("vocab": {"a": 0}, "merges": [], "unk_token": "u")", "unk_token 'u' is not in");
}

TEST_CASE("added tokens that contradict the vocabulary or each other are reported") {
  const auto refuses = [](const std::string& added, const std::string& message) {
    REQUIRE_THROWS_WITH(read(file_of(kVocabulary, R"("added_tokens": [)" + added + "],")),
                        Contains(message));
  };
  refuses(R"({"id": 0, "content": "x"})", "added token 'x' has id 0, which is another token's");
  refuses(R"({"id": 7, "content": "a"})", "added token 'a' has id 7 but is 0 in the vocabulary");
  refuses(R"({"id": 7, "content": "x"}, {"id": 7, "content": "y"})", "which is another token's");
  refuses(R"({"id": 7, "content": "x"}, {"id": 8, "content": "x"})", "'x' is repeated");
  refuses(R"({"id": 7})", "lacks 'content'");
  refuses(R"({"id": 7, "content": ")" + std::string(600, 'x') + "\"}", "is 600 bytes long");
}

TEST_CASE("ids may have gaps, which have no text and are never sampled") {
  const auto tokenizer = read(file_of(R"("vocab": {"a": 0, "b": 9}, "merges": [])"));
  REQUIRE(tokenizer->vocab_size() == 10);
  REQUIRE(tokenizer->decode({0, 5, 9, 11, -1}) == "ab");
  REQUIRE(tokenizer->byte_length(5) == 0);
  REQUIRE_FALSE(tokenizer->may_be_drawn(5));
  REQUIRE(tokenizer->may_be_drawn(9));
}

TEST_CASE("a text without tokens is an error, not dropped") {
  const auto tokenizer = read(file_of(kVocabulary));
  REQUIRE(tokenizer->encode("aab") == std::vector<int32_t>{0, 2});
  REQUIRE_THROWS_WITH(tokenizer->encode("abc"),
                      "t.json: the vocabulary has no token for 'c' and no unk_token");
}

TEST_CASE("cyclic merges terminate") {
  // "aa" is merged from "a" "a", and "a" from "aa" and nothing.
  const auto tokenizer = read(file_of(
      R"("vocab": {"a": 0, "aa": 1, "aaa": 2, "": 3}, "merges": ["a a", "aa a", "a aa", " aa"])"));
  REQUIRE(tokenizer->decode(tokenizer->encode(std::string(1001, 'a'))) == std::string(1001, 'a'));
}

TEST_CASE("invalid and exponential patterns are refused") {
  const auto with_pattern = [](const std::string& pattern) {
    return file_of(R"("vocab": {"a": 0, "b": 1}, "merges": [])",
                   R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": )"
                   R"({"Regex": ")" +
                       pattern + R"("}},)");
  };
  REQUIRE_THROWS_WITH(read(with_pattern("(a")), Contains("the pattern '(a' is not a regular"));
  REQUIRE_THROWS_WITH(read(with_pattern("[a")), Contains("premature end of char-class"));
  REQUIRE_THROWS_WITH(read(with_pattern("\\\\p{Lettre}")), Contains("{Lettre}"));
  REQUIRE_THROWS_WITH(read(with_pattern(std::string(2000, '(') + std::string(2000, ')'))),
                      Contains("parse depth limit over"));
  const auto encode = [&](const std::string& pattern, const std::string& text) {
    return read(with_pattern(pattern))->encode(text);
  };
  REQUIRE_THROWS_WITH(encode("(a|aa)+$", std::string(100, 'a') + "b"),
                      Contains("t.json: pre_tokenizer.pattern.Regex: the pattern '(a|aa)+$' cannot "
                               "be matched at byte 0 of a text: retry-limit-in-match over"));
  // One backtracking position for each character.
  REQUIRE_THROWS_AS(encode("a+(?<!a)", std::string(5 << 20, 'a')), TextLimitError);
  // Repetitions at the end of an expression need no backtracking positions.
  REQUIRE(encode("[a]+", std::string(5 << 20, 'a')).size() == 5 << 20);
}

TEST_CASE("a pattern that takes quadratic time over a text is stopped", "[full]") {
  const Matcher pattern = pattern_matcher("a+(?<!a)", "test");
  int64_t found = 0;
  const auto count = [&](size_t, size_t) { ++found; };
  REQUIRE_THROWS_WITH(pattern.find(std::string(1 << 20, 'a'), count),
                      Contains("test: the pattern 'a+(?<!a)' takes too long: it stopped after"));
  pattern.find(std::string(1 << 13, 'a') + "b", count);
  REQUIRE(found == 0);
}

TEST_CASE("one word of ten megabytes takes seconds", "[full]") {
  const auto gpt2 = make_tokenizer(kGoldens + "gpt2");
  const std::string same(10 << 20, 'a');
  REQUIRE(gpt2->decode(gpt2->encode(same)) == same);
  std::string varied;
  for (uint32_t i = 0; varied.size() < 10 << 20; ++i)
    varied += static_cast<char>('a' + (i * 2654435761u >> 24) % 26);
  REQUIRE(gpt2->decode(gpt2->encode(varied)) == varied);
  const auto llama2 = make_tokenizer(kGoldens + "llama2.json");
  REQUIRE(llama2->decode(llama2->encode(varied)) == varied);
  std::string marks =
      "a";  // Combining marks of two alternating classes, which normal forms reorder.
  while (marks.size() < 10 << 20) marks += "\xcc\x81\xcc\xa3";
  const auto qwen2 = make_tokenizer(kGoldens + "qwen2.json");
  REQUIRE(qwen2->encode(marks).size() > 1000);
}

TEST_CASE("long and short words are merged equally") {
  const auto gpt2 = make_tokenizer(kGoldens + "gpt2");
  // Words of 63 and 65 bytes use different algorithms; a word twice as long begins equally.
  const std::string word = "internationalization";
  std::string text;
  while (text.size() < 200) text += word;
  std::vector<int32_t> whole = gpt2->encode(text);
  REQUIRE(gpt2->decode(whole) == text);
  for (size_t length = 60; length < 70; ++length) {
    const std::vector<int32_t> ids = gpt2->encode(text.substr(0, length));
    REQUIRE(std::equal(ids.begin(), ids.begin() + 8, whole.begin()));
  }
}

// Texts that exercise each kind of step.
void use(const Tokenizer& tokenizer) {
  for (const char* text : {"", "Don't  a1b2<|endoftext|> \xe4\xb8\xad\xcc\x81\n", "\xff\xc3 ab"}) {
    try {
      const std::vector<int32_t> ids = tokenizer.encode_with_special(text);
      for (const int32_t id : ids) CHECK(id >= 0 && id < tokenizer.vocab_size());
      CHECK(tokenizer.decode(ids).size() < 1 << 24);
      tokenizer.encode(text);
    } catch (const Error&) {
      // A text without tokens is a valid outcome.
    }
  }
}

// A vocabulary of a few tokens with each kind of step, so that a million mutations take a minute.
const std::vector<std::string> kSeeds = {
    R"({"added_tokens": [{"id": 4, "content": "<|endoftext|>", "special": true, "lstrip": true}],)"
    R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace",)"
    R"("pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Prepend", "prepend": "b"}]},)"
    R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":)"
    R"({"Regex": "[^\\s\\w]+|\\p{N}{1,3}"}, "behavior": "MergedWithNext", "invert": false},)"
    R"({"type": "Digits", "individual_digits": true}]}, "decoder": {"type": "Fuse"},)"
    R"("model": {"type": "BPE", "unk_token": "a", "fuse_unk": true, "byte_fallback": true,)"
    R"("vocab": {"a": 0, "b": 1, "ab": 2, "<0x0A>": 3}, "merges": ["a b"]}})",
    R"({"normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space":)"
    R"(true, "use_regex": true}, "decoder": null, "post_processor": {"single": [{"SpecialToken":)"
    R"({"id": "<s>"}}]}, "model": {"ignore_merges": true, "unk_token": "u", "vocab": {"u": 0,)"
    R"("\u0120": 1, "a": 2, "\u0120a": 3}, "merges": [["\u0120", "a"]], "end_of_word_suffix": ""}})",
    R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",)"
    R"("split": true}, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern":)"
    R"({"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Strip", "content":)"
    R"(" ", "start": 1, "stop": 0}]}, "model": {"vocab": {"_": 0, "a": 1, "_a": 2}, "merges":)"
    R"(["_ a"], "unk_token": "_", "continuing_subword_prefix": null}})"};

void try_json(std::string_view text) { use(*read(std::string(text))); }

TEST_CASE("mutated tokenizer.json files work or are refused") {
  for (const std::string& seed : kSeeds) REQUIRE_NOTHROW(try_json(seed));
  const FuzzReport report = fuzz("tokenizer_json", kSeeds, try_json, kFastFuzz);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

TEST_CASE("a million mutated tokenizer.json files work or are refused", "[full]") {
  fuzz("tokenizer_json", kSeeds, try_json, kFullFuzz);
}

void try_gpt2(std::string_view text) {
  const size_t half = std::min(text.find('\n'), text.size());
  use(*tokenizer_of_files("t", {{"vocab.json", std::string(text.substr(0, half))},
                                {"merges.txt", std::string(text.substr(half))}}));
}

const std::vector<std::string> kGpt2Seeds = {
    "{\"a\": 0, \"b\": 1, \"ab\": 2, \"\xc4\xa0\": 3, \"<|endoftext|>\": 4}\n#version: 0.2\na b\n"};

TEST_CASE("mutated merges files work or are refused") {
  REQUIRE_NOTHROW(try_gpt2(kGpt2Seeds[0]));
  const FuzzReport report = fuzz("merges", kGpt2Seeds, try_gpt2, kFastFuzz);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

TEST_CASE("a million mutated merges files work or are refused", "[full]") {
  fuzz("merges", kGpt2Seeds, try_gpt2, kFullFuzz);
}

void try_model(std::string_view bytes) {
  use(*make_sentence_piece_tokenizer("t.model", {{"tokenizer.model", std::string(bytes)}}));
}

TEST_CASE("a damaged SentencePiece model is refused") {
  const std::string model = read_file(kGoldens + "unigram.model");
  REQUIRE_NOTHROW(try_model(model));
  REQUIRE_THROWS_WITH(try_model(""), "t.model: not a SentencePiece model: it has no pieces");
  REQUIRE_THROWS_WITH(try_model("nonsense"), Contains("not a SentencePiece model"));
  REQUIRE_THROWS_AS(try_model(std::string_view(model).substr(0, model.size() / 2)), Error);
  // An offset in the normalization table that points outside it.
  std::string bent = model;
  const size_t table = bent.find("nmt_nfkc") + 8 + 4 + 4;
  for (size_t i = 0; i < 4; ++i) bent[table + i] = static_cast<char>(0x7f);
  REQUIRE_THROWS_WITH(try_model(bent), "t.model: its normalization table is damaged");
}

// The normalization table with other offsets, which are most of its bytes.
void try_bent_table(uint32_t number) {
  static const std::string model = read_file(kGoldens + "unigram.model");
  const size_t table = model.find("nmt_nfkc") + 8 + 4 + 4;
  std::string bent = model;
  for (uint32_t i = 0; i <= number % 3; ++i) {
    const uint32_t random = (number * 3 + i) * 2654435761u;
    bent[table + random % 180000] = static_cast<char>(random >> 24);
  }
  try {
    try_model(bent);
  } catch (const Error&) {
  }
}

TEST_CASE("mutated normalization tables work or are refused") {
  for (uint32_t number = 0; number < 100; ++number) REQUIRE_NOTHROW(try_bent_table(number));
}

TEST_CASE("many mutated normalization tables work or are refused", "[full]") {
  for (uint32_t number = 0; number < 20000; ++number) try_bent_table(number);
}

TEST_CASE("mutated SentencePiece models work or are refused") {
  const std::vector<std::string> seeds = {read_file(kGoldens + "bpe.model")};
  const FuzzReport report = fuzz("sentence_piece", seeds, try_model, kFastFuzz / 3);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

TEST_CASE("a million mutated SentencePiece models work or are refused", "[full]") {
  fuzz("sentence_piece", {read_file(kGoldens + "bpe.model")}, try_model, kFullFuzz);
}

}  // namespace
}  // namespace tessera
