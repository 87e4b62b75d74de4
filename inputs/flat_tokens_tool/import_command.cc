// SPDX-License-Identifier: Apache-2.0
// flat_tokens import.
#include <algorithm>
#include <filesystem>

#include <fmt/ostream.h>

#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/flat_tokens_tool/zarr.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kImportUsage =
    R"(  flat_tokens import STORE --output=FILE [options]
      Converts seqax's flat tokens, a zarr store of format 2, to a flat-tokens file.
      --tokenizer=FILE            the tokenizer of the store, to embed in the file
      --vocab_size=N              or its vocabulary size; default max_token_id + 1
      --compression=0             deflate level, 0 to 9
      --overwrite                 replace an output made by another tokenizer
)";

constexpr int64_t kMostImportedIds = int64_t{1} << 31;

TokenizerIdentity find_identity(const Arguments& arguments, int64_t least) {
  if (arguments.has("tokenizer") && arguments.has("vocab_size"))
    throw UsageError("--tokenizer and --vocab_size exclude each other");
  TokenizerIdentity identity =
      arguments.has("tokenizer")
          ? identity_of(*make_tokenizer(arguments.text("tokenizer", "")))
          : unknown_tokenizer(arguments.number<int64_t>("vocab_size", least, 1, kMostImportedIds));
  if (identity.vocab_size < least)
    fail(
        "the store has ids up to {}, but the vocabulary of {} has {} ids; name the tokenizer that "
        "made the store",
        least - 1, arguments.has("tokenizer") ? identity.name : "--vocab_size",
        identity.vocab_size);
  return identity;
}

void run_import(const std::vector<std::string>& words, std::ostream& out, std::ostream&) {
  const Arguments arguments =
      parse_arguments(words, {"output", "tokenizer", "vocab_size", "compression"}, {"overwrite"});
  const std::string output = arguments.text("output", "");
  if (output.empty()) throw UsageError("import needs --output=FILE");
  if (arguments.paths.size() != 1)
    throw UsageError(fmt::format("import needs one STORE, got {}", arguments.paths.size()));
  const std::filesystem::path store = arguments.paths[0];
  const std::vector<std::string> splits = zarr_splits(store);
  int64_t least = 1;
  for (const std::string& split : splits)
    least = std::max(least, zarr_max_token_id(store, split) + 1);
  const TokenizerIdentity identity = find_identity(arguments, least);
  check_output(arguments, identity);
  FlatTokensWriter writer(output, identity,
                          {.compression = arguments.number<int>("compression", 0, 0, 9),
                           .source = std::filesystem::absolute(store).lexically_normal().string()});
  for (const std::string& split : splits) {
    const ImportedSplit imported = import_zarr_split(store, split, &writer);
    fmt::print(out, "{}:{}: {} tokens in {} documents", output, split, imported.tokens,
               imported.documents);
    if (imported.empty > 0) fmt::print(out, "; skipped: {} empty", imported.empty);
    fmt::print(out, "\n");
  }
  writer.finish();
}

}  // namespace

Command import_command() { return {"import", std::string(kImportUsage), run_import}; }

}  // namespace tessera
