// SPDX-License-Identifier: Apache-2.0
// Implements the command `flat_tokens export`: writes a split of a token file in Megatron's form.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/ostream.h>

#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens/megatron_index.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"

namespace tessera {
namespace {

struct ExportMegatron {
  static constexpr std::string_view kName = "export", kUsage = "export --output=PREFIX FILE";
  static constexpr std::string_view kAbout =
      "Writes a split of a token file as PREFIX.bin and PREFIX.idx, which Megatron-LM reads.";

  std::filesystem::path output;
  std::string split = "train";
  FIELDS(About(output, "of both files, without the extension", {.unit = "PREFIX"}),
         About(split, "to write"))

  void run(const Paths& paths, const Printed& printed) const {
    if (output.empty() || paths.size() != 1)
      throw UsageError("export needs --output=PREFIX and one token file");
    const FlatTokensReader reader(paths[0], split);
    MegatronWriter writer(output, reader.vocab_size());
    constexpr int64_t kStartsAtATime = 1 << 16;
    std::vector<uint64_t> starts;
    for (int64_t first = 0; first < reader.num_documents(); first += kStartsAtATime) {
      starts.resize(
          static_cast<size_t>(std::min(kStartsAtATime, reader.num_documents() - first) + 1));
      reader.read_starts(first, starts);
      for (size_t i = 0; i + 1 < starts.size(); ++i)
        writer.add(document_ids(reader, static_cast<int64_t>(starts[i]),
                                static_cast<int64_t>(starts[i + 1])));
    }
    writer.finish();
    fmt::print(printed.out, "{0}.bin, {0}.idx: {1} tokens in {2} documents of {3}\n",
               output.string(), reader.num_tokens(), writer.num_documents(), split);
  }

 private:
  static std::vector<int32_t> document_ids(const FlatTokensReader& reader, int64_t begin,
                                           int64_t end) {
    std::vector<uint32_t> encoded(static_cast<size_t>(end - begin));
    reader.read(begin, encoded);
    std::vector<int32_t> ids(encoded.size());
    std::ranges::transform(encoded, ids.begin(), token_id);
    return ids;
  }
};

}  // namespace

FlatTokensCommand export_command() { return flat_tokens_command<ExportMegatron>(); }

}  // namespace tessera
