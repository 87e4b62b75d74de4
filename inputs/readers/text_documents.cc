// SPDX-License-Identifier: Apache-2.0
// Documents of text files: the whole file, or its parts between separators.
#include <algorithm>
#include <memory>

#include "core/base/error.h"
#include "inputs/readers/piece_documents.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

extern const DocumentFormat kText;

class TextDocuments final : public PieceDocuments {
 public:
  TextDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : PieceDocuments(kText, std::move(source), options.separator, options) {}

 protected:
  Record parse(std::string_view piece) override {
    Record record = checked(std::string(piece));
    if (record.text || !options().separator.empty()) return record;
    const std::string_view before = piece.substr(0, valid_prefix(piece));
    record.within = fmt::format(":{}", 1 + std::ranges::count(before, '\n'));
    return record;
  }
};

const DocumentFormat kText = {.name = "text",
                              .title = "text",
                              .extensions = {".txt", ".text", ".md"},
                              .record = "document",
                              .is_text = true,
                              .has_records = false,
                              .open = read_as<TextDocuments>};
const DocumentFormatRegistrar kRegisterText(kText);

}  // namespace
}  // namespace tessera
