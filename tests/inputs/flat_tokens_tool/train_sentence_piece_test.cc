// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool/train_sentence_piece.h"

#include <sstream>
#include <string>

#include "core/io/file.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

// Does not change, and compresses well: 600 tokens make it 2.6 times as short.
const std::filesystem::path kText = TESSERA_SOURCE_DIR "/LICENSE";

TEST_CASE("a trained model is lossless and deterministic") {
  const TemporaryDirectory directory;
  for (const auto kind : {SentencePieceModel::kUnigram, SentencePieceModel::kBpe}) {
    const TrainSentencePieceOptions options{.model = kind, .vocab_size = 600};
    const auto report = train_sentence_piece({kText}, options, directory / "a.model");
    REQUIRE(report.documents == 1);
    REQUIRE(report.lines > 100);
    train_sentence_piece({kText}, options, directory / "b.model");
    REQUIRE(read_file(directory / "a.model") == read_file(directory / "b.model"));

    const auto tokenizer = make_tokenizer((directory / "a.model").string());
    REQUIRE(tokenizer->vocab_size() == 600);
    const std::string text = "  two spaces\n\n\tand a tab, \xe4\xb8\xad\xf0\x9f\x98\x80 \n";
    REQUIRE(tokenizer->decode(tokenizer->encode(text)) == text);
    const std::string known = read_file(kText);
    REQUIRE(tokenizer->decode(tokenizer->encode(known)) == known);
    REQUIRE(tokenizer->encode(known).size() < known.size() / 2);
  }
}

TEST_CASE("lines longer than the library's limit are cut, not dropped") {
  const TemporaryDirectory directory;
  std::string text;
  while (text.size() < 20000) text += "some words and more of them in one line ";
  for (int i = 0; i < 3000; ++i) text += "\xe4\xb8\xad";
  write_bytes(directory / "long.txt", text);
  const auto report = train_sentence_piece(
      {directory / "long.txt"},
      {.model = SentencePieceModel::kBpe, .vocab_size = 300, .character_coverage = 1.0},
      directory / "a.model");
  REQUIRE(report.lines == 8);
  const auto tokenizer = make_tokenizer((directory / "a.model").string());
  REQUIRE(tokenizer->id_of("\xe4\xb8\xad").has_value());
}

int tool(const std::vector<std::string>& words, std::string* out, std::string* errors) {
  std::ostringstream out_stream;
  std::ostringstream error_stream;
  const int code = run_flat_tokens(words, out_stream, error_stream);
  *out = out_stream.str();
  *errors = error_stream.str();
  return code;
}

TEST_CASE("flat_tokens train makes a model, or reports what is missing") {
  const TemporaryDirectory directory;
  const std::string output = "--output=" + (directory / "t.model").string();
  std::string out;
  std::string errors;
  REQUIRE(tool({"train", output, "--vocab_size=500", "--model=bpe", kText.string()}, &out,
               &errors) == 0);
  REQUIRE_THAT(out, Contains("t.model: 500 tokens, from") && Contains("lines of 1 documents"));
  REQUIRE(tool({"train", output, "--vocab_size=100000", kText.string()}, &out, &errors) == 1);
  REQUIRE_THAT(errors, Contains("Vocabulary size too high"));
  REQUIRE(tool({"train", output, "--model=bp", kText.string()}, &out, &errors) == 2);
  REQUIRE_THAT(errors, Contains("--model=bp: expected one of unigram, bpe; did you mean 'bpe'?"));
  REQUIRE(tool({"train", "--output=t.txt", kText.string()}, &out, &errors) == 2);
  REQUIRE_THAT(errors, Contains("a name that ends in .json or .model"));
  write_bytes(directory / "empty.txt", "\n\n");
  REQUIRE(tool({"train", output, (directory / "empty.txt").string()}, &out, &errors) == 1);
  REQUIRE_THAT(errors, Contains("the input has no text to train a tokenizer on"));
}

}  // namespace
}  // namespace tessera
