// SPDX-License-Identifier: Apache-2.0
// flat_tokens train.
#include <filesystem>

#include <fmt/ostream.h>

#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/flat_tokens_tool/train_sentence_piece.h"
#include "inputs/readers/text_files.h"

namespace tessera {
namespace {

constexpr std::string_view kTrainUsage =
    R"(  flat_tokens train --output=FILE.model [options] PATH...
      Trains a SentencePiece tokenizer, for build --tokenizer=FILE.model. PATH as for build.
      --model=unigram             or bpe
      --vocab_size=8000           including 256 bytes and three special tokens
      --character_coverage=0.9995 fraction of characters with tokens; the rest are bytes
      --max_lines=1000000         a random sample of a larger text
      --text_field=text           of lines of JSON
)";

void train(const std::vector<std::string>& words, std::ostream& out, std::ostream& notes) {
  const Arguments arguments = parse_arguments(
      words, {"output", "model", "vocab_size", "character_coverage", "max_lines", "text_field"});
  const std::string output = arguments.text("output", "");
  if (output.empty()) throw UsageError("train needs --output=FILE.model");
  if (!output.ends_with(".model"))
    throw UsageError(
        fmt::format("--output={}: expected a name that ends in .model, which "
                    "--tokenizer recognises",
                    output));
  if (arguments.paths.empty()) throw UsageError("train needs at least one PATH of text");
  TrainSentencePieceOptions options;
  if (arguments.has("model"))
    options.model = arguments.choice("model", {"unigram", "bpe"}) == 0
                        ? SentencePieceModel::kUnigram
                        : SentencePieceModel::kBpe;
  options.vocab_size = arguments.number<int64_t>("vocab_size", options.vocab_size, 260, 1 << 21);
  options.character_coverage =
      arguments.number<double>("character_coverage", options.character_coverage, 0.98, 1.0);
  options.max_lines = arguments.number<int64_t>("max_lines", options.max_lines, 1, 1 << 30);
  options.read.text_field = arguments.text("text_field", options.read.text_field);
  const TrainedSentencePiece trained =
      train_sentence_piece(find_text_files(arguments.paths), options, output);
  if (trained.skipped.count > 0)
    fmt::print(notes, "skipped {} corrupt records, the first: {}\n", trained.skipped.count,
               trained.skipped.first);
  fmt::print(out, "{}: {} tokens, from {} lines of {} documents\n", output, options.vocab_size,
             trained.lines, trained.documents);
}

}  // namespace

Command train_command() { return {"train", std::string(kTrainUsage), train}; }

}  // namespace tessera
