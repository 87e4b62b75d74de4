// SPDX-License-Identifier: Apache-2.0
#include "core/backend/reference/array.h"

#include <cstring>
#include <type_traits>

namespace tessera {
namespace {

template <typename T>
void encode_as(const std::vector<double>& values, std::byte* bytes) {
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    if constexpr (std::is_same_v<T, BFloat16>) {
      element = BFloat16(static_cast<float>(values[i]));
    } else {
      element = static_cast<T>(values[i]);
    }
    std::memcpy(bytes + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename T>
std::vector<double> decode_as(int64_t count, const std::byte* bytes) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, bytes + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, BFloat16>) {
      values.push_back(static_cast<float>(element));
    } else {
      values.push_back(static_cast<double>(element));
    }
  }
  return values;
}

}  // namespace

int64_t element_count(const std::vector<Axis>& axes) {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.size;
  return count;
}

std::vector<int64_t> strides_along(const ReferenceArray& array, const std::vector<Axis>& axes) {
  std::vector<int64_t> strides;
  for (const Axis& wanted : axes) {
    int64_t stride = 1, found = 0;
    for (size_t i = array.axes.size(); i-- > 0; stride *= array.axes[i].size) {
      if (array.axes[i].name == wanted.name) found = stride;
    }
    strides.push_back(found);
  }
  return strides;
}

void for_each_index(
    const std::vector<Axis>& axes, const std::vector<std::vector<int64_t>>& strides,
    const std::function<void(int64_t position, const std::vector<int64_t>& offsets)>& visit) {
  std::vector<int64_t> index(axes.size(), 0), offsets(strides.size(), 0);
  const int64_t count = element_count(axes);
  for (int64_t position = 0; position < count; ++position) {
    visit(position, offsets);
    for (size_t axis = axes.size(); axis-- > 0;) {
      const bool wraps = ++index[axis] == axes[axis].size;
      const int64_t step = wraps ? 1 - axes[axis].size : 1;
      for (size_t i = 0; i < strides.size(); ++i) offsets[i] += step * strides[i][axis];
      if (!wraps) break;
      index[axis] = 0;
    }
  }
}

void encode_values(DType dtype, const std::vector<double>& values, std::byte* bytes) {
  switch (dtype) {
    case DType::kF64:
      return encode_as<double>(values, bytes);
    case DType::kF32:
      return encode_as<float>(values, bytes);
    case DType::kBF16:
      return encode_as<BFloat16>(values, bytes);
    case DType::kI32:
      return encode_as<int32_t>(values, bytes);
    case DType::kU32:
      return encode_as<uint32_t>(values, bytes);
    case DType::kBool:
      return encode_as<uint8_t>(values, bytes);
  }
}

std::vector<double> decode_values(const Type& type, const std::byte* bytes) {
  switch (type.dtype) {
    case DType::kF64:
      return decode_as<double>(type.elements(), bytes);
    case DType::kF32:
      return decode_as<float>(type.elements(), bytes);
    case DType::kBF16:
      return decode_as<BFloat16>(type.elements(), bytes);
    case DType::kI32:
      return decode_as<int32_t>(type.elements(), bytes);
    case DType::kU32:
      return decode_as<uint32_t>(type.elements(), bytes);
    case DType::kBool:
      return decode_as<uint8_t>(type.elements(), bytes);
  }
  return {};
}

}  // namespace tessera
