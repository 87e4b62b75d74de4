// SPDX-License-Identifier: Apache-2.0
// Float instructions. Approximate ones are computed as exactly as the host can.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/warp.h"

namespace tessera::virtual_gpu {
namespace {

// Modes.
constexpr uint32_t kFlush = 1, kSaturate = 2, kRelu = 4;

template <typename T>
T value_of(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    return float_of(bits);
  } else {
    return double_of(bits);
  }
}

// Adjust: the instruction has modes, which are looked at for each lane.
template <typename T, auto F, int Inputs, bool Adjust>
void apply(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  const Row& b = w.row(i.o[Inputs > 1 ? 2 : 1]);
  const Row& c = w.row(i.o[Inputs > 2 ? 3 : 1]);
  const auto input = [&](uint64_t bits) {
    const T x = value_of<T>(bits);
    if constexpr (Adjust && std::is_same_v<T, float>)
      if (i.mode & kFlush) return flush(x);
    return x;
  };
  w.write(i.o[0], mask, [&](int l) {
    T result;
    if constexpr (Inputs == 1) result = static_cast<T>(F(input(a[l])));
    if constexpr (Inputs == 2) result = static_cast<T>(F(input(a[l]), input(b[l])));
    if constexpr (Inputs == 3) result = static_cast<T>(F(input(a[l]), input(b[l]), input(c[l])));
    if constexpr (Adjust) {
      if constexpr (std::is_same_v<T, float>)
        if (i.mode & kFlush) result = flush(result);
      if (i.mode & kSaturate) result = saturate(result);
    }
    return bits_of(result);
  });
}

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSub = [](auto a, auto b) { return a - b; };
constexpr auto kMul = [](auto a, auto b) { return a * b; };
constexpr auto kDiv = [](auto a, auto b) { return a / b; };
constexpr auto kFma = [](auto a, auto b, auto c) { return fma_of(a, b, c); };
// -0 is less than +0; one NaN is ignored.
constexpr auto kMin = [](auto a, auto b) {
  if (a == b) return std::signbit(a) ? a : b;
  return a != a ? b : b != b ? a : std::min(a, b);
};
constexpr auto kMax = [](auto a, auto b) {
  if (a == b) return std::signbit(a) ? b : a;
  return a != a ? b : b != b ? a : std::max(a, b);
};
constexpr auto kMinNan = [](auto a, auto b) { return a != a ? a : b != b ? b : kMin(a, b); };
constexpr auto kMaxNan = [](auto a, auto b) { return a != a ? a : b != b ? b : kMax(a, b); };
constexpr auto kNeg = [](auto a) { return -a; };
constexpr auto kAbs = [](auto a) { return std::fabs(a); };
constexpr auto kSqrt = [](auto a) { return std::sqrt(a); };
constexpr auto kReciprocal = [](auto a) { return decltype(a){1} / a; };
constexpr auto kReciprocalRoot = [](auto a) { return 1 / std::sqrt(static_cast<double>(a)); };
constexpr auto kSin = [](auto a) { return std::sin(static_cast<double>(a)); };
constexpr auto kCos = [](auto a) { return std::cos(static_cast<double>(a)); };
constexpr auto kTanh = [](auto a) { return std::tanh(a); };
constexpr auto kExp2 = [](auto a) { return std::exp2(a); };
constexpr auto kLog2 = [](auto a) { return std::log2(a); };
constexpr auto kCopySign = [](auto a, auto b) { return std::copysign(b, a); };

// Rounded to odd, to be rounded once more.
constexpr auto kNarrowAdd = [](double a, double b) { return fused(1, a, b); };
constexpr auto kNarrowSub = [](double a, double b) { return fused(1, a, -b); };
constexpr auto kNarrowFma = [](double a, double b, double c) { return fused(a, b, c); };

// Sums and products that are not rounded to nearest. Down is up with other signs, also of zeros.
template <auto F, int Inputs>
void apply_directed(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  const Row& b = w.row(i.o[2]);
  const Row& c = w.row(i.o[Inputs > 2 ? 3 : 1]);
  const bool down = static_cast<Rounding>(i.mode) == Rounding::kDown;
  const Rounding rounding = down ? Rounding::kUp : static_cast<Rounding>(i.mode);
  const double sign = down ? -1 : 1;
  w.write(i.o[0], mask, [&](int l) {
    const double exact = F(sign, float_of(a[l]), float_of(b[l]), float_of(c[l]));
    const float result = directed(exact, rounding);
    return bits_of(down ? -result : result);
  });
}
constexpr auto kDirectedAdd = [](double s, double a, double b, double) {
  return fused(1, s * a, s * b);
};
constexpr auto kDirectedSub = [](double s, double a, double b, double) {
  return fused(1, s * a, -s * b);
};
constexpr auto kDirectedMul = [](double s, double a, double b, double) { return s * a * b; };
constexpr auto kDirectedFma = [](double s, double a, double b, double c) {
  return fused(s * a, b, s * c);
};

template <auto F, int Inputs>
Handler wide(const Opcode& op, const Instruction& i) {
  switch (op.type()) {
    case Type::kF32:
      return i.mode ? apply<float, F, Inputs, true> : apply<float, F, Inputs, false>;
    case Type::kF64:
      return i.mode ? nullptr : apply<double, F, Inputs, false>;
    default:
      return nullptr;
  }
}

// f16 and bf16, one or two in a register: computed in f64, rounded once.
template <bool Brain>
double element(uint64_t bits, int half) {
  const auto part = static_cast<uint16_t>(bits >> (16 * half));
  return Brain ? widen_bf16(part) : widen_half(part);
}
template <bool Brain, auto F, int Inputs, int Halves>
void apply_narrow(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  const Row& b = w.row(i.o[Inputs > 1 ? 2 : 1]);
  const Row& c = w.row(i.o[Inputs > 2 ? 3 : 1]);
  w.write(i.o[0], mask, [&](int l) {
    uint64_t result = 0;
    for (int h = 0; h < Halves; ++h) {
      const double x = element<Brain>(a[l], h), y = element<Brain>(b[l], h),
                   z = element<Brain>(c[l], h);
      double value;
      if constexpr (Inputs == 1) value = F(x);
      if constexpr (Inputs == 2) value = F(x, y);
      if constexpr (Inputs == 3) value = F(x, y, z);
      if (i.mode & kSaturate) value = saturate(value);
      if (i.mode & kRelu) value = value < 0 ? 0 : value;
      result |= uint64_t{narrow(value, Brain ? 8 : 5, Brain ? 7 : 10, Rounding::kNearest)}
                << (16 * h);
    }
    return result;
  });
}
// Signs of narrow floats are bits, also of NaN.
template <bool Negate, uint64_t Signs>
void change_sign(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) { return Negate ? a[l] ^ Signs : a[l] & ~Signs; });
}

template <auto F, int Inputs>
Handler half(const Opcode& op) {
  switch (op.type()) {
    case Type::kF16:
      return apply_narrow<false, F, Inputs, 1>;
    case Type::kF16x2:
      return apply_narrow<false, F, Inputs, 2>;
    case Type::kBf16:
      return apply_narrow<true, F, Inputs, 1>;
    case Type::kBf16x2:
      return apply_narrow<true, F, Inputs, 2>;
    default:
      return nullptr;
  }
}

bool is_narrow(Type type) {
  return type == Type::kF16 || type == Type::kF16x2 || type == Type::kBf16 || type == Type::kBf16x2;
}

template <auto F, auto Narrow, int Inputs>
Handler both(const Opcode& op, const Instruction& i) {
  return is_narrow(op.type()) ? half<Narrow, Inputs>(op) : wide<F, Inputs>(op, i);
}

template <bool Negate>
Handler sign_of(const Opcode& op, const Instruction& i) {
  switch (op.type()) {
    case Type::kF16:
    case Type::kBf16:
      return change_sign<Negate, 0x8000>;
    case Type::kF16x2:
    case Type::kBf16x2:
      return change_sign<Negate, 0x80008000>;
    case Type::kF32:
    case Type::kF64:
      break;
    default:
      return nullptr;
  }
  if constexpr (Negate) return wide<kNeg, 1>(op, i);
  return wide<kAbs, 1>(op, i);
}

Handler directed_of(const Opcode& op, Instruction& i) {
  const Rounding rounding = op.has("rz")   ? Rounding::kZero
                            : op.has("rm") ? Rounding::kDown
                                           : Rounding::kUp;
  i.mode = static_cast<uint32_t>(rounding);
  if (op.type() != Type::kF32 || op.has("ftz") || op.has("sat")) return nullptr;
  if (op.name() == "add") return apply_directed<kDirectedAdd, 2>;
  if (op.name() == "sub") return apply_directed<kDirectedSub, 2>;
  if (op.name() == "mul") return apply_directed<kDirectedMul, 2>;
  return op.name() == "fma" ? apply_directed<kDirectedFma, 3> : nullptr;
}

Handler minimum_of(const Opcode& op, const Instruction& i) {
  return op.has("NaN") ? both<kMinNan, kMinNan, 2>(op, i) : both<kMin, kMin, 2>(op, i);
}
Handler maximum_of(const Opcode& op, const Instruction& i) {
  return op.has("NaN") ? both<kMaxNan, kMaxNan, 2>(op, i) : both<kMax, kMax, 2>(op, i);
}

using Family = Handler (*)(const Opcode&, const Instruction&);
const std::unordered_map<std::string_view, Family>& families() {
  static const std::unordered_map<std::string_view, Family> names = {
      {"add", both<kAdd, kNarrowAdd, 2>},
      {"sub", both<kSub, kNarrowSub, 2>},
      {"mul", both<kMul, kMul, 2>},
      {"fma", both<kFma, kNarrowFma, 3>},
      {"mad", wide<kFma, 3>},
      {"div", wide<kDiv, 2>},
      {"min", minimum_of},
      {"max", maximum_of},
      {"neg", sign_of<true>},
      {"abs", sign_of<false>},
      {"sqrt", wide<kSqrt, 1>},
      {"rcp", wide<kReciprocal, 1>},
      {"rsqrt", wide<kReciprocalRoot, 1>},
      {"sin", wide<kSin, 1>},
      {"cos", wide<kCos, 1>},
      {"tanh", both<kTanh, kTanh, 1>},
      {"ex2", both<kExp2, kExp2, 1>},
      {"lg2", wide<kLog2, 1>},
      {"copysign", wide<kCopySign, 2>}};
  return names;
}

template <typename T>
void test_property(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  uint32_t result = 0;
  for (int l = 0; l < kLanes; ++l) {
    const T x = value_of<T>(a[l]);
    result |= static_cast<uint32_t>(i.mode & (1u << std::fpclassify(x)) ? 1u : 0u) << l;
  }
  w.write_predicate(i.o[0], mask, result);
}

// testp: the classes of numbers for which it holds.
Handler property_of(const Opcode& op, Instruction& i) {
  const uint32_t finite = 1u << FP_NORMAL | 1u << FP_SUBNORMAL | 1u << FP_ZERO;
  const uint32_t infinite = 1u << FP_INFINITE, nan = 1u << FP_NAN;
  i.mode = op.has("finite")       ? finite
           : op.has("infinite")   ? infinite
           : op.has("number")     ? finite | infinite
           : op.has("notanumber") ? nan
           : op.has("normal")     ? 1u << FP_NORMAL
           : op.has("subnormal")  ? 1u << FP_SUBNORMAL
                                  : 0u;
  if (!i.mode) return nullptr;
  return op.type() == Type::kF64 ? test_property<double> : test_property<float>;
}

}  // namespace

Handler float_handler(const Opcode& op, Instruction& i) {
  if (op.name() == "testp") return property_of(op, i);
  const auto found = families().find(op.name());
  if (found == families().end() || !is_float(op.type())) return nullptr;
  if (op.has("rz") || op.has("rm") || op.has("rp")) return directed_of(op, i);
  i.mode =
      (op.has("ftz") ? kFlush : 0) | (op.has("sat") ? kSaturate : 0) | (op.has("relu") ? kRelu : 0);
  return found->second(op, i);
}

}  // namespace tessera::virtual_gpu
