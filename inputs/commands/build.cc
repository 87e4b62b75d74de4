// SPDX-License-Identifier: Apache-2.0
// flat_tokens build.
#include <filesystem>

#include <fmt/ostream.h>

#include "inputs/commands/command.h"
#include "inputs/text_corpus.h"
#include "inputs/tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kUsage =
    R"(  flat_tokens build --output=FILE [options] PATH...
      Makes a flat-tokens file of text files. PATH is a file, a folder or a pattern ('docs/*.md').
      --tokenizer=bytes           byte b is token b + 1
      --validation_fraction=0.1   held out: the tail of one file, or whole files of several
      --max_tokens=N              of each split; the rest is left out
      --compression=0             deflate level, 0 to 9
)";

void build(const std::vector<std::string>& words, std::ostream& out, std::ostream&) {
  const Arguments arguments = parse_arguments(
      words, {"output", "tokenizer", "validation_fraction", "max_tokens", "compression"});
  const std::string output = arguments.text("output", "");
  if (output.empty()) throw UsageError("build wants --output=FILE");
  if (arguments.paths.empty()) throw UsageError("build wants at least one PATH of text");
  const double fraction = arguments.number<double>("validation_fraction", 0.1, 0.0, 0.999999);
  FlatTokensBuildOptions options;
  options.max_tokens = arguments.number<int64_t>("max_tokens", -1, 1, int64_t{1} << 60);
  options.compression = arguments.number<int>("compression", 0, 0, 9);
  const auto tokenizer = make_tokenizer(arguments.text("tokenizer", "bytes"));
  const Corpus corpus =
      split_corpus(find_text_files(arguments.paths), std::filesystem::current_path(), fraction);
  const FlatTokensBuilt built = build_flat_tokens(corpus, *tokenizer, output, options);
  fmt::print(out, "{}: {} training and {} validation tokens of {}\n", output, built.train_tokens,
             built.validation_tokens, corpus.description);
}

}  // namespace

Command build_command() { return {"build", std::string(kUsage), build}; }

}  // namespace tessera
