// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/record_documents.h"

#include <simdjson.h>

#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

// What is wrong, without the details: "not UTF-8".
std::string_view reason_of(std::string_view fault) {
  fault = fault.substr(0, fault.find_first_of(":;,("));
  return fault.substr(0, fault.find_last_not_of(' ') + 1);
}

}  // namespace

RecordDocuments::RecordDocuments(const DocumentFormat& format, const ReadOptions& options)
    : format_(format), options_(options) {
  CHECK(options.every >= 1 && options.first >= 0 && options.first < options.every);
}

std::optional<std::string> RecordDocuments::next() {
  while (skip_others()) {
    const int64_t number = position_.document;
    std::optional<Record> record = read_record(number);
    if (!record) break;
    position_ = {number + 1, offset()};
    if (record->text && options_.map) {
      record->text = calling(*options_.map, "map()",
                             [&] { return options_.map->map(*std::move(record->text)); });
      if (!record->text) continue;
    }
    if (record->text) return std::move(record->text);
    if (!record->fault.empty())
      skip_or_fail(options_.corrupt_records,
                   document_place(where(), format_, options_, number) + record->within + ": " +
                       record->fault,
                   reason_of(record->fault), &corrupt_);
  }
  return std::nullopt;
}

bool RecordDocuments::skip() { return skip_others() && skip_one(); }

void RecordDocuments::seek(const ShardPosition& position) {
  seek_record(position);
  position_ = position;
}

bool RecordDocuments::skip_others() {
  while (position_.document % options_.every != options_.first)
    if (!skip_one()) return false;
  return true;
}

bool RecordDocuments::skip_one() {
  if (!skip_record()) return false;
  position_ = {position_.document + 1, offset()};
  return true;
}

RecordDocuments::Record RecordDocuments::too_long() const {
  return {std::nullopt, fmt::format("the document has more than {} bytes (max_document_bytes)",
                                    options_.max_document_bytes)};
}

RecordDocuments::Record RecordDocuments::checked(std::string text) const {
  if (std::cmp_greater(text.size(), options_.max_document_bytes)) return too_long();
  if (options_.require_utf8 && !simdjson::validate_utf8(text.data(), text.size()))
    return {std::nullopt, encoding_fault(text)};
  return {std::move(text), ""};
}

std::string encoding_fault(std::string_view text) {
  const size_t at = valid_prefix(text);
  return fmt::format("not UTF-8: byte {:#04x} at byte {} of the document; convert it",
                     at < text.size() ? static_cast<unsigned char>(text[at]) : 0, at);
}

std::string missing_field_fault(std::string_view kind, std::string_view record,
                                const std::string& field, const std::vector<std::string>& names,
                                std::string_view meant) {
  const std::string near = meant.empty() ? nearest(field, names) : "";
  if (meant.empty()) meant = near;
  return fmt::format("no {} '{}'; the {} has {}{}", kind, field, record,
                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                     meant.empty() ? "" : fmt::format("; did you mean text_field={}?", meant));
}

}  // namespace tessera
