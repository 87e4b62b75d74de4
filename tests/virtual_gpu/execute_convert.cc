// SPDX-License-Identifier: Apache-2.0
// cvt and cvta.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/warp.h"

namespace tessera::virtual_gpu {
namespace {

constexpr uint32_t kFlush = 8, kSaturate = 16, kRelu = 32, kToInteger = 64;

Rounding rounding_of(const Instruction& i) { return static_cast<Rounding>(i.mode & 7); }

double to_integer(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return std::nearbyint(x);
    case Rounding::kZero:
      return std::trunc(x);
    case Rounding::kDown:
      return std::floor(x);
    case Rounding::kUp:
      return std::ceil(x);
    case Rounding::kAway:
      return std::round(x);
  }
  return x;
}

// Types as they are converted from: all floats are exact in f64.
struct Half {};
struct Brain {};
template <typename T>
auto source(uint64_t bits, const Instruction& i) {
  if constexpr (std::is_same_v<T, Half>) return widen_half(static_cast<uint16_t>(bits));
  if constexpr (std::is_same_v<T, Brain>) return widen_bf16(static_cast<uint16_t>(bits));
  if constexpr (std::is_same_v<T, float>)
    return static_cast<double>(i.mode & kFlush ? flush(float_of(bits)) : float_of(bits));
  if constexpr (std::is_same_v<T, double>) return double_of(bits);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
}

// Clamps, as the GPU does; NaN becomes 0.
template <typename To>
uint64_t integer_from(double x, const Instruction& i) {
  using Limits = std::numeric_limits<To>;
  x = to_integer(x, rounding_of(i));
  To result;
  if (x != x) {
    result = 0;
  } else if (x >= std::ldexp(1.0, Limits::digits)) {
    result = Limits::max();
  } else if (x <= static_cast<double>(Limits::min())) {
    result = Limits::min();
  } else {
    result = static_cast<To>(x);
  }
  return static_cast<std::make_unsigned_t<To>>(result);
}
template <typename To, typename From>
uint64_t integer_from(From x, const Instruction& i) {
  if (i.mode & kSaturate) {
    using Limits = std::numeric_limits<To>;
    if (std::cmp_less(x, Limits::min())) x = static_cast<From>(Limits::min());
    if (std::cmp_greater(x, Limits::max())) x = static_cast<From>(Limits::max());
  }
  // Sign-extended: the destination may be wider than the type.
  return static_cast<uint64_t>(static_cast<int64_t>(static_cast<To>(x)));
}

double adjusted(double x, const Instruction& i) {
  if (i.mode & kToInteger) x = to_integer(x, rounding_of(i));
  if (i.mode & kSaturate) x = saturate(x);
  if (i.mode & kRelu) x = x < 0 ? 0 : x;
  return x;
}

template <typename To, typename From>
uint64_t float_from(From value, const Instruction& i) {
  const Rounding rounding = i.mode & kToInteger ? Rounding::kNearest : rounding_of(i);
  if constexpr (std::is_same_v<To, float> && std::is_integral_v<From>)
    if (rounding == Rounding::kNearest) return bits_of(static_cast<float>(value));
  const double x = adjusted(static_cast<double>(value), i);
  if constexpr (std::is_same_v<To, double>) return bits_of(x);
  if constexpr (std::is_same_v<To, Half>) return narrow(x, 5, 10, rounding);
  if constexpr (std::is_same_v<To, Brain>) return narrow(x, 8, 7, rounding);
  if constexpr (std::is_same_v<To, float>) {
    const float result = directed(x, rounding);
    return bits_of(i.mode & kFlush ? flush(result) : result);
  }
}

template <typename To, typename From>
void convert(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) {
    const auto x = source<From>(a[l], i);
    if constexpr (std::is_integral_v<To>) {
      return integer_from<To>(x, i);
    } else {
      return float_from<To>(x, i);
    }
  });
}

template <typename To>
Handler from(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kB8:
      return convert<To, uint8_t>;
    case Type::kU16:
    case Type::kB16:
      return convert<To, uint16_t>;
    case Type::kU32:
    case Type::kB32:
      return convert<To, uint32_t>;
    case Type::kU64:
    case Type::kB64:
      return convert<To, uint64_t>;
    case Type::kS8:
      return convert<To, int8_t>;
    case Type::kS16:
      return convert<To, int16_t>;
    case Type::kS32:
      return convert<To, int32_t>;
    case Type::kS64:
      return convert<To, int64_t>;
    case Type::kF16:
      return convert<To, Half>;
    case Type::kBf16:
      return convert<To, Brain>;
    case Type::kF32:
      return convert<To, float>;
    case Type::kF64:
      return convert<To, double>;
    default:
      return nullptr;
  }
}

// The frequent cases, without modes.
void brain_from_float(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) { return uint64_t{bf16_of(float_of(a[l]))}; });
}
// The first operand becomes the upper half.
void brain_pair(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]);
  w.write(i.o[0], mask,
          [&](int l) { return uint64_t{bf16_of(float_of(a[l]))} << 16 | bf16_of(float_of(b[l])); });
}
template <typename To>
void pair(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]);
  w.write(i.o[0], mask, [&](int l) {
    return float_from<To>(source<float>(a[l], i), i) << 16 |
           float_from<To>(source<float>(b[l], i), i);
  });
}

// 10 bits of mantissa are kept, the others are zero.
void tensor_float(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask,
          [&](int l) { return uint64_t{narrow(float_of(a[l]), 8, 10, rounding_of(i))} << 13; });
}

Handler to(Type type, Type source_type) {
  switch (type) {
    case Type::kU8:
      return from<uint8_t>(source_type);
    case Type::kU16:
      return from<uint16_t>(source_type);
    case Type::kU32:
      return from<uint32_t>(source_type);
    case Type::kU64:
      return from<uint64_t>(source_type);
    case Type::kS8:
      return from<int8_t>(source_type);
    case Type::kS16:
      return from<int16_t>(source_type);
    case Type::kS32:
      return from<int32_t>(source_type);
    case Type::kS64:
      return from<int64_t>(source_type);
    case Type::kF16:
      return from<Half>(source_type);
    case Type::kBf16:
      return from<Brain>(source_type);
    case Type::kF32:
      return from<float>(source_type);
    case Type::kF64:
      return from<double>(source_type);
    default:
      return nullptr;
  }
}

struct RoundingName {
  std::string_view name;
  Rounding rounding;
  bool to_integer;
};
constexpr RoundingName kRoundings[] = {
    {"rn", Rounding::kNearest, false}, {"rz", Rounding::kZero, false},
    {"rm", Rounding::kDown, false},    {"rp", Rounding::kUp, false},
    {"rna", Rounding::kAway, false},   {"rni", Rounding::kNearest, true},
    {"rzi", Rounding::kZero, true},    {"rmi", Rounding::kDown, true},
    {"rpi", Rounding::kUp, true}};

Handler convert_of(const Opcode& op, Instruction& i) {
  for (const RoundingName& row : kRoundings)
    if (op.has(row.name))
      i.mode = static_cast<uint32_t>(row.rounding) | (row.to_integer ? kToInteger : 0);
  i.mode |=
      (op.has("ftz") ? kFlush : 0) | (op.has("sat") ? kSaturate : 0) | (op.has("relu") ? kRelu : 0);
  const Type result = op.type(0), argument = op.type(1);
  if (op.has("satfinite")) return nullptr;
  if (argument == Type::kF32) {
    if (result == Type::kTf32) return tensor_float;
    if (result == Type::kBf16x2) return i.mode ? pair<Brain> : brain_pair;
    if (result == Type::kF16x2) return pair<Half>;
    if (result == Type::kBf16 && !i.mode) return brain_from_float;
  }
  return to(result, argument);
}

template <uint64_t Window, bool ToGeneric>
void convert_address(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) { return ToGeneric ? a[l] + Window : a[l] - Window; });
}
template <uint64_t Window>
Handler address_of(const Opcode& op) {
  return op.has("to") ? convert_address<Window, false> : convert_address<Window, true>;
}

}  // namespace

Handler convert_handler(const Opcode& op, Instruction& i) {
  if (op.name() == "cvt" && op.types.size() == 2) return convert_of(op, i);
  if (op.name() != "cvta") return nullptr;
  if (op.has("shared")) return address_of<kSharedWindow>(op);
  // A function's parameter lies in local memory.
  if (op.has("local") || i.space == Space::kLocal) return address_of<kLocalWindow>(op);
  if (op.has("param")) return address_of<kParameterWindow>(op);
  return address_of<0>(op);
}

}  // namespace tessera::virtual_gpu
