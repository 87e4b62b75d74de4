// SPDX-License-Identifier: Apache-2.0
#include "inputs/cut_rows.h"

#include <algorithm>
#include <span>
#include <utility>

namespace tessera {
namespace {

void repeat_rows(HostArray& array, int64_t count) {
  const auto size = static_cast<size_t>(dtype_bytes(array.dtype));
  std::vector<std::byte> bytes;
  bytes.reserve(array.bytes.size() * static_cast<size_t>(count));
  for (size_t at = 0; at < array.bytes.size(); at += size)
    for (int64_t i = 0; i < count; ++i)
      bytes.insert(bytes.end(), array.bytes.data() + at, array.bytes.data() + at + size);
  array.bytes = std::move(bytes);
}

std::span<int32_t> integers(Batch& batch, const char* name) {
  const auto found = batch.find(name);
  if (found == batch.end() || found->second.dtype != DType::kI32) return {};
  return {found->second.data<int32_t>(), found->second.bytes.size() / sizeof(int32_t)};
}

// Counts segments and positions from the beginning of each piece.
void number_pieces(Batch& batch, size_t size) {
  const std::span<int32_t> ids = integers(batch, "segment_ids");
  const std::span<int32_t> positions = integers(batch, "segment_pos");
  for (size_t begin = 0; begin < ids.size(); begin += size) {
    const int32_t first = ids[begin], start = positions.empty() ? 0 : positions[begin];
    for (size_t i = begin; first > 0 && i < begin + size && ids[i] > 0; ++i) {
      if (ids[i] == first && start > 0) positions[i] -= start;
      ids[i] -= first - 1;
    }
  }
}

}  // namespace

void cut_rows(Batch& batch, int64_t seq_len) {
  const int64_t pieces = batch.at("ids").shape[1] / seq_len;
  if (pieces == 1) return;
  for (auto& [name, array] : batch) {
    if (array.shape.size() == 1) repeat_rows(array, pieces);
    array.shape[0] *= pieces;
    if (array.shape.size() > 1) array.shape[1] = seq_len;
    if (name == "label_bytes") std::ranges::fill(array.bytes, std::byte{0});
  }
  number_pieces(batch, static_cast<size_t>(seq_len));
}

}  // namespace tessera
