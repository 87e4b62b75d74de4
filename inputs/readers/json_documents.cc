// SPDX-License-Identifier: Apache-2.0
// Documents of lines of JSON: the text field of each, as in C4.
#include <simdjson.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/lenient_json.h"
#include "inputs/readers/piece_documents.h"

namespace tessera {
namespace {

extern const DocumentFormat kJsonLines;

class JsonLineDocuments final : public PieceDocuments {
 public:
  JsonLineDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : PieceDocuments(kJsonLines, std::move(source), "\n", options) {}

 protected:
  Record parse(std::string_view line) override {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
    simdjson::dom::element root;
    // simdjson reads past the end of the line.
    static_assert(PieceReader::kPadding >= simdjson::SIMDJSON_PADDING);
    auto error = parser_.parse(line.data(), line.size(), false).get(root);
    std::optional<std::string> lenient;
    if (error != simdjson::SUCCESS && error != simdjson::UTF8_ERROR) {
      lenient = lenient_json(line, Surrogates::kReplace);
      if (lenient) error = parser_.parse(*lenient).get(root);
    }
    Record record =
        error == simdjson::SUCCESS ? field_of(root) : Record{std::nullopt, json_fault(line, error)};
    // An escaped half of a surrogate pair is not valid text.
    if (options().as_ids) return record;
    if (record.text && line.find("\\u") != std::string_view::npos &&
        !simdjson::validate_utf8(record.text->data(), record.text->size()))
      record = {std::nullopt, encoding_fault(*record.text)};
    if (record.text && lenient && record.text->find(kNotJson) != std::string::npos)
      record = {std::nullopt, fmt::format("the field '{}' is not a text: it is NaN, Infinity or "
                                          "1e999, or it has half of a surrogate pair (\\ud800)",
                                          options().text_field)};
    if (parser_.capacity() > kLargeParser) parser_ = simdjson::dom::parser();
    return record;
  }

 private:
  static constexpr size_t kLargeParser = size_t{1} << 24;

  static std::string json_fault(std::string_view line, simdjson::error_code error) {
    if (error == simdjson::UTF8_ERROR) return encoding_fault(line);
    return fmt::format("not valid JSON: {} Each line must be one complete object{}",
                       simdjson::error_message(error),
                       line.starts_with("[") ? "; jq -c '.[]' makes lines of a list" : "");
  }

  static std::string_view kind_of(const simdjson::dom::element& element) {
    if (element.is_object()) return "an object";
    if (element.is_array()) return "a list";
    if (element.is_string()) return "a string";
    if (element.is_bool()) return "a boolean";
    return element.is_null() ? "null" : "a number";
  }

  Record field_of(const simdjson::dom::element& root) const {
    const std::string& field = options().text_field;
    simdjson::dom::object object;
    if (root.get(object) != simdjson::SUCCESS)
      return {std::nullopt,
              fmt::format(
                  "the line is {}, expected an object with the field '{}'{}", kind_of(root), field,
                  root.is_array() ? "; jq -c '.[]' makes a line of each of its elements" : "")};
    const auto found = member_of(object, field);
    if (!found) return {std::nullopt, missing_field(object)};
    if (options().as_ids) return ids_of(*found);
    std::string_view text;
    if (found->get(text) != simdjson::SUCCESS)
      return {std::nullopt,
              fmt::format("the field '{}' is {}, expected a string", field, kind_of(*found))};
    return {std::string(text), ""};
  }

  Record ids_of(const simdjson::dom::element& found) const {
    std::string ids;
    bool is_list = found.is_array();
    if (is_list)
      for (const simdjson::dom::element item : found.get_array()) {
        int64_t id = 0;
        is_list = is_list && item.get(id) == simdjson::SUCCESS;
        append_id(id, &ids);
      }
    if (is_list) return {std::move(ids), ""};
    return {std::nullopt, fmt::format("the field '{}' is {}, expected a list of integers",
                                      options().text_field, kind_of(found))};
  }

  // Returns the member `field`, or the member b of the member a for "a.b". The last of a name
  // counts, as in Python.
  static std::optional<simdjson::dom::element> member_of(const simdjson::dom::object& object,
                                                         std::string_view field) {
    std::optional<simdjson::dom::element> found;
    for (const auto& member : object)
      if (member.key == field) found = member.value;
    if (found) return found;
    for (const auto& member : object) {
      simdjson::dom::object inner;
      if (field.size() > member.key.size() && field[member.key.size()] == '.' &&
          field.starts_with(member.key) && member.value.get(inner) == simdjson::SUCCESS)
        found = member_of(inner, field.substr(member.key.size() + 1));
    }
    return found;
  }

  std::string missing_field(const simdjson::dom::object& object) const {
    constexpr size_t kMostShown = 8;
    constexpr size_t kLongestShown = 40;
    std::vector<std::string> names;
    std::string meant, longest;  // The longest string is likely to be the text.
    size_t most = 0;
    for (const auto& member : object) {
      if (names.size() < kMostShown) names.emplace_back(member.key.substr(0, kLongestShown));
      std::string_view text;
      if (member.value.get(text) == simdjson::SUCCESS && text.size() > most) {
        most = text.size();
        longest = member.key;
      }
      simdjson::dom::object inner;
      if (member.value.get(inner) == simdjson::SUCCESS &&
          inner.at_key(options().text_field).error() == simdjson::SUCCESS)
        meant = fmt::format("{}.{}", member.key, options().text_field);
    }
    if (meant.empty()) meant = nearest(options().text_field, names);
    if (meant.empty()) meant = longest;
    return missing_field_fault("field", "line", options().text_field, names, meant);
  }

  simdjson::dom::parser parser_;
};

const DocumentFormat kJsonLines = {.name = "jsonl",
                                   .title = "lines of JSON",
                                   .extensions = {".jsonl", ".ndjson", ".json"},
                                   .record = "line",
                                   .is_text = true,
                                   .has_ids = true,
                                   .open = read_as<JsonLineDocuments>};
const DocumentFormatRegistrar kRegisterJsonLines(kJsonLines);

}  // namespace
}  // namespace tessera
