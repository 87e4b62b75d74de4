// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/observe/value_range.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// A float is finite unless all bits of its exponent are set. Without an exit in the middle, so that
// compilers use vector instructions.
template <typename Word>
bool any_has_all(std::span<const std::byte> bytes, Word exponent) {
  bool any = false;
  for (size_t at = 0; at < bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, &bytes[at], sizeof(Word));
    any |= (word & exponent) == exponent;
  }
  return any;
}

}  // namespace

ArrayBytesList read_arrays(const Graph& graph, const std::vector<ValueId>& values,
                           std::span<const DeviceAddress> addresses, Stream& stream) {
  CHECK(values.size() == addresses.size());
  ArrayBytesList arrays(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    arrays[i].resize(static_cast<size_t>(graph.type(values[i]).bytes()));
    stream.copy_to_host(arrays[i], addresses[i]);
  }
  stream.synchronize();
  return arrays;
}

bool all_finite(const Type& type, std::span<const std::byte> bytes) {
  if (type.dtype == DType::kF64) return !any_has_all<uint64_t>(bytes, 0x7ff0000000000000u);
  if (type.dtype == DType::kF32) return !any_has_all<uint32_t>(bytes, 0x7f800000u);
  return type.dtype != DType::kBF16 || !any_has_all<uint16_t>(bytes, 0x7f80u);
}

std::string range_text(const Type& type, const std::vector<double>& elements) {
  const auto is_finite = [](double element) { return std::isfinite(element); };
  std::vector<double> finite;
  std::ranges::copy_if(elements, std::back_inserter(finite), is_finite);
  std::string text;
  if (finite.size() < elements.size()) {
    const auto first = std::ranges::find_if_not(elements, is_finite);
    text =
        fmt::format("{} of {} elements are not finite; the first, [{}], is {}",
                    elements.size() - finite.size(), elements.size(),
                    fmt::join(index_of(type, first - elements.begin()), ", "), plain_nan(*first));
    if (finite.empty()) return text;
    text += "; the others ";
  }
  const auto [least, greatest] = std::ranges::minmax(finite);
  return text + (least == greatest ? fmt::format("{:.6g}", least)
                                   : fmt::format("{:.6g} to {:.6g}", least, greatest));
}

std::vector<int64_t> index_of(const Type& type, int64_t position) {
  std::vector<int64_t> index(type.axes.size());
  for (size_t i = index.size(); i-- > 0; position /= type.axes[i].size)
    index[i] = position % type.axes[i].size;
  return index;
}

}  // namespace tessera
