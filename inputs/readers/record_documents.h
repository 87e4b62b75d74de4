// SPDX-License-Identifier: Apache-2.0
// The common part of document readers: counts records, skips those of other readers, and treats
// corrupt ones as configured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/readers/document_format.h"
#include "inputs/readers/document_reader.h"

namespace tessera {

class RecordDocuments : public DocumentReader {
 public:
  RecordDocuments(const DocumentFormat& format, const ReadOptions& options);

  std::optional<std::string> next() final;
  bool skip() final;
  ShardPosition position() const final { return position_; }
  void seek(const ShardPosition& position) final;
  const CorruptRecordCount& corrupt() const final { return corrupt_; }

 protected:
  // A document's text, what is wrong with a corrupt record (after its place), or neither: blank.
  struct Record {
    std::optional<std::string> text;
    std::string fault;
    std::string within = "";  // Follows the record's place in a message: ":2".
  };

  // Reads the record `number`, the next one; nullopt at the end.
  virtual std::optional<Record> read_record(int64_t number) = 0;
  virtual bool skip_record() = 0;  // False at the end.
  // ShardPosition::offset of the next record.
  virtual int64_t offset() const = 0;
  virtual void seek_record(const ShardPosition& position) = 0;
  virtual const std::string& where() const = 0;  // The file name, for messages.

  const ReadOptions& options() const { return options_; }
  Record too_long() const;
  // Returns the text if it has a size and an encoding that the options allow.
  Record checked(std::string text) const;

 private:
  bool skip_others();  // The records of other readers; false at the end.
  bool skip_one();

  const DocumentFormat& format_;
  ReadOptions options_;
  ShardPosition position_;
  CorruptRecordCount corrupt_;
};

// Appends an id to a text of ReadOptions::as_ids.
inline void append_id(int64_t id, std::string* text) {
  text->append(reinterpret_cast<const char*>(&id), sizeof(id));
}

// Returns "not UTF-8: byte 0xff at byte 17 of the document; convert it".
std::string encoding_fault(std::string_view text);

// Returns "no column 'text'; the row has a, b; did you mean text_field=b?". `meant`: the name to
// propose; "": the nearest.
std::string missing_field_fault(std::string_view kind, std::string_view record,
                                const std::string& field, const std::vector<std::string>& names,
                                std::string_view meant);

}  // namespace tessera
