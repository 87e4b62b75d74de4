// SPDX-License-Identifier: Apache-2.0
#include "inputs/commands/output.h"

#include <filesystem>

namespace tessera {

// Hours of work, or what is no token file at all, are not lost to a slip of the command line.
void check_output(const Arguments& arguments, const TokenizerIdentity& identity) {
  const std::filesystem::path output = arguments.text("output", "");
  if (arguments.has("overwrite") || !std::filesystem::exists(output)) return;
  std::string tokenizer, fingerprint;
  try {
    const std::vector<std::string> splits = FlatTokensReader::splits(output);
    if (splits.empty()) fail("it has no splits");
    const FlatTokensReader reader(output, splits[0]);
    tokenizer = reader.tokenizer_name();
    fingerprint = reader.tokenizer_fingerprint();
  } catch (const std::exception& error) {
    throw UsageError(
        fmt::format("--output={} is there and is not a token file ({}); --overwrite replaces it",
                    output.string(), error.what()));
  }
  if (fingerprint != identity.fingerprint)
    throw UsageError(fmt::format(
        "--output={} exists and was made with {}; --overwrite replaces it", output.string(),
        tokenizer == identity.name
            ? fmt::format("another version of the tokenizer '{}'", tokenizer)
            : fmt::format("the tokenizer '{}', not with '{}'", tokenizer, identity.name)));
}

}  // namespace tessera
