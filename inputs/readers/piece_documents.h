// SPDX-License-Identifier: Apache-2.0
// Documents that are pieces of a text: lines, or what a separator divides.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "inputs/readers/piece_reader.h"
#include "inputs/readers/record_documents.h"

namespace tessera {

class PieceDocuments : public RecordDocuments {
 public:
  PieceDocuments(const DocumentFormat& format, std::unique_ptr<ByteSource> source,
                 std::string separator, const ReadOptions& options)
      : RecordDocuments(format, options),
        pieces_(std::move(source), std::move(separator), options.max_document_bytes) {}

  int64_t bytes_read() const final { return pieces_.source().bytes_read(); }

 protected:
  virtual Record parse(std::string_view piece) = 0;

  std::optional<Record> read_record(int64_t number) final {
    const std::optional<Piece> piece = pieces_.next();
    if (!piece) return std::nullopt;
    if (piece->is_too_long) return too_long();
    constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
    std::string_view text = piece->text;
    if (number == 0 && options().require_utf8 && text.starts_with(kUtf8Mark))
      text.remove_prefix(kUtf8Mark.size());
    return parse(text);
  }
  bool skip_record() final { return pieces_.skip(); }
  int64_t offset() const final { return pieces_.offset(); }
  void seek_record(const ShardPosition& position) final { pieces_.seek(position.offset); }
  const std::string& where() const final { return pieces_.source().where(); }

 private:
  PieceReader pieces_;
};

}  // namespace tessera
