// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/gather_rows.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/base/error.h"

namespace tessera {
namespace {

size_t row_bytes(const HostArray& array) {
  auto bytes = static_cast<size_t>(dtype_bytes(array.dtype));
  for (size_t i = 1; i < array.shape.size(); ++i) bytes *= static_cast<size_t>(array.shape[i]);
  return bytes;
}

void append_number(int64_t number, std::string* text) {
  text->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Reads what `pack` wrote, from front to back.
class Unpacker {
 public:
  explicit Unpacker(const std::string& text) : rest_(text) {}
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof(value)), sizeof(value));
    return value;
  }
  const char* take(size_t bytes) {
    CHECK(rest_.size() >= bytes, "rows of another process are cut short");
    const char* here = rest_.data();
    rest_.remove_prefix(bytes);
    return here;
  }

 private:
  std::string_view rest_;
};

// The number of ranges, the ranges, then array by array the rows of all ranges.
std::string pack(const Batch& local, const std::vector<RowRange>& ranges) {
  std::string text;
  append_number(static_cast<int64_t>(ranges.size()), &text);
  for (const RowRange& range : ranges) {
    append_number(range.begin, &text);
    append_number(range.end, &text);
  }
  for (const auto& [name, array] : local)
    text.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return text;
}

void unpack(const std::string& text, Batch* batch) {
  Unpacker packed(text);
  std::vector<RowRange> ranges(static_cast<size_t>(packed.number()));
  for (RowRange& range : ranges) {
    range.begin = packed.number();
    range.end = packed.number();
  }
  for (auto& [name, array] : *batch) {
    const size_t size = row_bytes(array);
    for (const RowRange& range : ranges) {
      const size_t bytes = size * static_cast<size_t>(range.size());
      CHECK(size * static_cast<size_t>(range.end) <= array.bytes.size());
      std::memcpy(array.bytes.data() + size * static_cast<size_t>(range.begin), packed.take(bytes),
                  bytes);
    }
  }
}

}  // namespace

Batch gather_rows(const Batch& local, const std::vector<RowRange>& ranges, int64_t global_rows,
                  ProcessGroup& processes) {
  if (processes.size() == 1) return local;
  Batch batch;
  for (const auto& [name, array] : local) {
    CHECK(!array.axes.empty() && array.axes[0] == "batch", "{} has no rows", name);
    HostArray whole{array.dtype, array.axes, array.shape, {}};
    whole.shape[0] = global_rows;
    whole.bytes.resize(row_bytes(array) * static_cast<size_t>(global_rows));
    batch.emplace(name, std::move(whole));
  }
  for (const std::string& text : processes.all_gather(pack(local, ranges), "the rows of a batch"))
    unpack(text, &batch);
  return batch;
}

Batch row_of_batch(const Batch& batch, int64_t row) {
  Batch one;
  for (const auto& [name, array] : batch) {
    const size_t size = row_bytes(array);
    const auto begin =
        array.bytes.begin() + static_cast<std::ptrdiff_t>(size * static_cast<size_t>(row));
    one.emplace(name, HostArray{array.dtype,
                                {array.axes.begin() + 1, array.axes.end()},
                                {array.shape.begin() + 1, array.shape.end()},
                                {begin, begin + static_cast<std::ptrdiff_t>(size)}});
  }
  return one;
}

}  // namespace tessera
