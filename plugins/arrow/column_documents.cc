// SPDX-License-Identifier: Apache-2.0
#include "plugins/arrow/column_documents.h"

#include <arrow/array.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

bool has_texts(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      return true;
    case arrow::Type::DICTIONARY:
      return has_texts(*static_cast<const arrow::DictionaryType&>(type).value_type());
    default:
      return false;
  }
}

// Returns the text of a value that is not null.
std::string_view text_at(const arrow::Array& column, int64_t row) {
  switch (column.type_id()) {
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return static_cast<const arrow::LargeBinaryArray&>(column).GetView(row);
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      return static_cast<const arrow::BinaryViewArray&>(column).GetView(row);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(column);
      return text_at(*coded.dictionary(), coded.GetValueIndex(row));
    }
    default:
      return static_cast<const arrow::BinaryArray&>(column).GetView(row);
  }
}

// Finds "a.b": a column of this name, or the member b of a struct a. False if the schema has
// neither.
bool find_path(const arrow::FieldVector& fields, std::string_view name, ColumnPath* path) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i]->name() != name) continue;
    path->push_back(static_cast<int>(i));
    return true;
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& outer = fields[i]->name();
    if (name.size() <= outer.size() || name[outer.size()] != '.' || !name.starts_with(outer))
      continue;
    path->push_back(static_cast<int>(i));
    const arrow::FieldVector& members = fields[i]->type()->fields();
    if (find_path(members, name.substr(outer.size() + 1), path)) return true;
    path->pop_back();
  }
  return false;
}

// Adds the names of columns with texts, "a.b" for members.
void add_text_columns(const arrow::FieldVector& fields, const std::string& prefix,
                      std::vector<std::string>* names) {
  constexpr size_t kMostShown = 8;
  for (const auto& field : fields) {
    if (names->size() == kMostShown) names->push_back("…");
    if (names->size() > kMostShown) return;
    const std::string name = prefix + field->name();
    if (has_texts(*field->type())) names->push_back(name);
    if (field->type()->id() == arrow::Type::STRUCT)
      add_text_columns(field->type()->fields(), name + ".", names);
  }
}

}  // namespace

ColumnDocuments::ColumnDocuments(const DocumentFormat& format, std::unique_ptr<ByteSource> source,
                                 const ReadOptions& options)
    : RecordDocuments(format, options),
      source_(std::move(source)),
      file_(std::make_shared<SourceFile>(*source_)) {
  if (source_->size() < 0)
    fail("{}: {} is not read from a compressed file; decompress it", where(), format.title);
}

ColumnPath ColumnDocuments::find_column(const arrow::Schema& schema) const {
  ColumnPath path;
  std::vector<std::string> texts;
  add_text_columns(schema.fields(), "", &texts);
  const std::string& name = options().text_field;
  if (!find_path(schema.fields(), name, &path))
    fail("{}: {}", where(), missing_field_fault("column", "table", name, texts, ""));
  const arrow::DataType* type = schema.field(path[0])->type().get();
  for (size_t i = 1; i < path.size(); ++i) type = type->field(path[i])->type().get();
  if (!has_texts(*type))
    fail("{}: the column '{}' is of type {}, expected string or binary", where(), name,
         type->ToString());
  return path;
}

bool ColumnDocuments::has_row() {
  while (column_ == nullptr || row_ >= column_->length()) {
    const std::shared_ptr<arrow::RecordBatch> batch = next_batch();
    if (batch == nullptr) return false;
    if (column_ != nullptr) {
      first_row_ += column_->length();
      row_ = 0;
    }
    column_ = value_of(arrow::FieldPath(path_).GetFlattened(*batch), where());
  }
  return true;
}

std::optional<RecordDocuments::Record> ColumnDocuments::read_record(int64_t /*number*/) {
  if (!has_row()) return std::nullopt;
  const int64_t row = row_++;
  if (column_->IsNull(row))
    return Record{std::nullopt, fmt::format("the text '{}' is null", options().text_field)};
  return checked(std::string(text_at(*column_, row)));
}

void ColumnDocuments::seek_record(const ShardPosition& position) {
  column_ = nullptr;
  row_ = 0;
  first_row_ = seek_batch(position.offset);
  while (offset() < position.offset) {
    if (!has_row())
      fail("{}: has {} rows, cannot resume at row {}; the file has changed", where(), offset(),
           position.offset);
    row_ = std::min(column_->length(), position.offset - first_row_);
  }
}

}  // namespace tessera
