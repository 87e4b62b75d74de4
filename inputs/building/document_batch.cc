// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/document_batch.h"

#include <cstring>

namespace tessera {

void DocumentIds::add(std::span<const int32_t> ids, uint64_t mark) {
  if (ids.empty()) return;
  const size_t begin = bytes_.size();
  bytes_.resize(begin + ids.size() * static_cast<size_t>(id_bytes_));
  if (id_bytes_ == sizeof(int32_t)) {
    std::memcpy(bytes_.data() + begin, ids.data(), ids.size_bytes());
  } else {
    std::byte* to = bytes_.data() + begin;
    for (const int32_t id : ids) {
      const auto narrow = static_cast<uint16_t>(id);
      std::memcpy(to, &narrow, sizeof(narrow));
      to += sizeof(narrow);
    }
  }
  lengths_.push_back(ids.size() | mark);
}

void DocumentIds::add_document(std::span<const int32_t> ids) { add(ids, 0); }
void DocumentIds::extend_document(std::span<const int32_t> ids) { add(ids, kGoesOn); }

int32_t DocumentIds::id(int64_t index) const {
  const std::byte* const from = bytes_.data() + index * id_bytes_;
  if (id_bytes_ == sizeof(uint16_t)) {
    uint16_t narrow = 0;
    std::memcpy(&narrow, from, sizeof(narrow));
    return narrow;
  }
  int32_t id = 0;
  std::memcpy(&id, from, sizeof(id));
  return id;
}

void DocumentIds::clear() {
  bytes_.clear();
  lengths_.clear();
}

void DocumentBatch::clear() {
  texts.clear();
  for (DocumentIds& ids : tokens) ids.clear();
  bytes = 0;
  end = {};
  left_out = {};
  bytes_on_disk = 0;
}

}  // namespace tessera
