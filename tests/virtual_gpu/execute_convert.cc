// SPDX-License-Identifier: Apache-2.0
// cvt and cvta.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/virtual_gpu/lanes.h"

namespace tessera::virtual_gpu {
namespace {

constexpr uint32_t kFlush = 8, kSaturate = 16, kRelu = 32, kToInteger = 64;

Rounding rounding_of(const Instruction& i) { return static_cast<Rounding>(i.mode & 7); }

// Source types of conversions. All floats are exact in f64.
struct Half {};
struct Brain {};
template <typename T>
auto source(uint64_t bits, const Instruction& i) {
  if constexpr (std::is_same_v<T, Half>) {
    return widen_half(static_cast<uint16_t>(bits));
  } else if constexpr (std::is_same_v<T, Brain>) {
    return widen_bf16(static_cast<uint16_t>(bits));
  } else if constexpr (std::is_same_v<T, float>) {
    return static_cast<double>(i.mode & kFlush ? flush(float_of(bits)) : float_of(bits));
  } else {
    return value_of<T>(bits);
  }
}

// Clamps like the GPU; NaN becomes 0.
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

// Returns pick(x) with x of the host's type.
template <typename F>
Handler for_any(Type type, F pick) {
  switch (type) {
    case Type::kF16:
      return pick(Half{});
    case Type::kBf16:
      return pick(Brain{});
    case Type::kF32:
      return pick(float{});
    case Type::kF64:
      return pick(double{});
    default:
      return for_integer(type, pick);
  }
}

// The common case, without modes.
void brain_from_float(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) { return uint64_t{bf16_of(float_of(a[l]))}; });
}
// The first operand becomes the upper half.
template <typename To>
void pair(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]);
  const auto half = [&](uint64_t bits) -> uint64_t {
    if (std::is_same_v<To, Brain> && i.mode == 0) return bf16_of(float_of(bits));
    return float_from<To>(source<float>(bits, i), i);
  };
  w.write(i.o[0], mask, [&](int l) { return half(a[l]) << 16 | half(b[l]); });
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
    if (result == Type::kBf16x2) return pair<Brain>;
    if (result == Type::kF16x2) return pair<Half>;
    if (result == Type::kBf16 && !i.mode) return brain_from_float;
  }
  return for_any(result, [&](auto to) {
    return for_any(argument,
                   [](auto from) -> Handler { return convert<decltype(to), decltype(from)>; });
  });
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
