// SPDX-License-Identifier: Apache-2.0
// Makes handlers from functions of one lane's values.
#pragma once

#include <type_traits>
#include <utility>

#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/warp.h"

namespace tessera::virtual_gpu {

// Convert a register's word to a type, and back: integers are truncated, then zero-extended.
template <typename T>
T value_of(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    return float_of(bits);
  } else if constexpr (std::is_same_v<T, double>) {
    return double_of(bits);
  } else {
    return static_cast<T>(bits);
  }
}
template <typename T>
uint64_t word_of(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return bits_of(x);
  } else {
    return static_cast<std::make_unsigned_t<T>>(x);
  }
}

template <typename T, auto F, size_t... K>
void apply_to(Warp& w, const Instruction& i, uint32_t mask, std::index_sequence<K...>) {
  const Row* const in[] = {&w.row(i.o[1 + K])...};
  w.write(i.o[0], mask,
          [&](int l) { return word_of<T>(static_cast<T>(F(value_of<T>((*in[K])[l])...))); });
}
// d = F(inputs), all of type T.
template <typename T, auto F, int Inputs>
void apply(Warp& w, const Instruction& i, uint32_t mask) {
  apply_to<T, F>(w, i, mask, std::make_index_sequence<Inputs>());
}
// d = F(inputs), where inputs after the first are untyped words (amounts of shifts).
template <typename T, auto F, size_t... K>
void apply_mixed(Warp& w, const Instruction& i, uint32_t mask, std::index_sequence<K...>) {
  const Row* const in[] = {&w.row(i.o[1]), &w.row(i.o[2 + K])...};
  w.write(i.o[0], mask, [&](int l) {
    return word_of<T>(static_cast<T>(F(value_of<T>((*in[0])[l]), (*in[1 + K])[l]...)));
  });
}
template <typename T, auto F, int Inputs>
void apply_words(Warp& w, const Instruction& i, uint32_t mask) {
  apply_mixed<T, F>(w, i, mask, std::make_index_sequence<Inputs - 1>());
}

// Returns pick(T{}), with T the host's type of an integer type; null for floats.
template <typename F>
Handler for_integer(Type type, F pick) {
  const bool sign = is_signed(type);
  if (is_float(type)) return nullptr;
  switch (bytes_of(type)) {
    case 1:
      return sign ? pick(int8_t{}) : pick(uint8_t{});
    case 2:
      return sign ? pick(int16_t{}) : pick(uint16_t{});
    case 4:
      return sign ? pick(int32_t{}) : pick(uint32_t{});
    case 8:
      return sign ? pick(int64_t{}) : pick(uint64_t{});
    default:
      return nullptr;
  }
}

}  // namespace tessera::virtual_gpu
