// SPDX-License-Identifier: Apache-2.0
#include "core/devices/reference/array.h"

#include <cstring>
#include <type_traits>

namespace tessera {
namespace {

// Calls use(T{}) with the type T of an element in memory.
template <typename Use>
void with_element(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kF64:
      return use(double{});
    case DType::kF32:
      return use(float{});
    case DType::kBF16:
      return use(BFloat16{});
    case DType::kI32:
      return use(int32_t{});
    case DType::kU32:
      return use(uint32_t{});
    case DType::kBool:
      return use(uint8_t{});
  }
}

// Converts via float: BFloat16 has no other conversion.
template <typename T>
using Arithmetic = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

}  // namespace

int64_t element_count(const std::vector<Axis>& axes) {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.size;
  return count;
}

std::vector<int64_t> strides_along(const ReferenceArray& array, const std::vector<Axis>& axes) {
  std::vector<int64_t> strides;
  for (const Axis& axis : axes) {
    int64_t stride = 1, found = 0;
    for (size_t i = array.axes.size(); i-- > 0; stride *= array.axes[i].size)
      if (array.axes[i].name == axis.name) found = stride;
    strides.push_back(found);
  }
  return strides;
}

void encode_values(DType dtype, const std::vector<double>& values, std::byte* bytes) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (size_t i = 0; i < values.size(); ++i) {
      element = T(static_cast<Arithmetic<T>>(values[i]));
      std::memcpy(bytes + i * sizeof(T), &element, sizeof(T));
    }
  });
}

std::vector<double> decode_values(const Type& type, const std::byte* bytes) {
  std::vector<double> values(static_cast<size_t>(type.elements()));
  decode_values(type.dtype, bytes, values);
  return values;
}

void decode_values(DType dtype, const std::byte* bytes, std::span<double> values) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&element, bytes + i * sizeof(T), sizeof(T));
      values[i] = static_cast<double>(static_cast<Arithmetic<T>>(element));
    }
  });
}

}  // namespace tessera
