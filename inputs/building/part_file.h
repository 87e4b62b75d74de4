// SPDX-License-Identifier: Apache-2.0
// The finished tokens of one unit and split, on disk until all are put together: ids in two bytes
// if the vocabulary allows, and lengths of documents. A work file of one build, not a format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "inputs/building/document_batch.h"

namespace tessera {

struct PartSizes {
  int64_t ids = 0;
  int64_t lengths = 0;
};

class PartWriter {
 public:
  // Goes on with what is there, cut to `sizes`. Nothing is created before there is a token.
  PartWriter(std::filesystem::path stem, int64_t vocab_size, const PartSizes& sizes);
  ~PartWriter();
  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;

  void append(const DocumentIds& documents);
  void sync();  // Returns when all is on disk.
  const PartSizes& sizes() const { return sizes_; }

 private:
  void open();

  std::filesystem::path stem_;
  int64_t id_bytes_;
  PartSizes sizes_;
  int ids_ = -1;
  int lengths_ = -1;
  bool has_unsynced_ = false;
};

// Whether the files have at least these sizes.
bool part_is_there(const std::filesystem::path& stem, int64_t vocab_size, const PartSizes& sizes);

// Tokens [begin, end) of a run.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Gives out runs of ids of the range in order; `goes_on` tells those that belong to the document
// before, even if that lies before the range. Of ids, no others are read.
void read_part(const std::filesystem::path& stem, int64_t vocab_size, const PartSizes& sizes,
               const TokenRange& range,
               const std::function<void(std::span<const int32_t> ids, bool goes_on)>& visit);

}  // namespace tessera
