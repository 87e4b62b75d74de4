// SPDX-License-Identifier: Apache-2.0
// Float instructions. Approximate ones are computed in the host's full precision.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tests/virtual_gpu/lanes.h"

namespace tessera::virtual_gpu {
namespace {

constexpr uint32_t kFlush = 1, kSaturate = 2;  // Modes.

template <typename T, auto F, size_t... K>
void apply_adjusted(Warp& w, const Instruction& i, uint32_t mask, std::index_sequence<K...>) {
  const Row* const in[] = {&w.row(i.o[1 + K])...};
  const auto flushed = [&](T x) {
    if constexpr (std::is_same_v<T, float>)
      if (i.mode & kFlush) return flush(x);
    return x;
  };
  w.write(i.o[0], mask, [&](int l) {
    const T result = flushed(static_cast<T>(F(flushed(value_of<T>((*in[K])[l]))...)));
    return bits_of(i.mode & kSaturate ? saturate(result) : result);
  });
}
template <auto F, int Inputs>
void apply_f32(Warp& w, const Instruction& i, uint32_t mask) {
  apply_adjusted<float, F>(w, i, mask, std::make_index_sequence<Inputs>());
}

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSub = [](auto a, auto b) { return a - b; };
constexpr auto kMul = [](auto a, auto b) { return a * b; };
constexpr auto kDiv = [](auto a, auto b) { return a / b; };
constexpr auto kFma = [](auto a, auto b, auto c) { return fma_of(a, b, c); };
// -0 is less than +0; a single NaN is ignored.
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

// Sums and products with directed rounding. Down is up with all signs inverted, also of zeros.
template <auto F, int Inputs>
void apply_directed(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[Inputs]);
  const bool down = static_cast<Rounding>(i.mode) == Rounding::kDown;
  const Rounding rounding = down ? Rounding::kUp : static_cast<Rounding>(i.mode);
  w.write(i.o[0], mask, [&](int l) {
    const double exact = F(down ? -1.0 : 1.0, float_of(a[l]), float_of(b[l]), float_of(c[l]));
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
Handler directed_of(const Opcode& op, Instruction& i) {
  i.mode = static_cast<uint32_t>(op.has("rz")   ? Rounding::kZero
                                 : op.has("rm") ? Rounding::kDown
                                                : Rounding::kUp);
  if (op.type() != Type::kF32 || op.has("ftz") || op.has("sat")) return nullptr;
  if (op.name() == "add") return apply_directed<kDirectedAdd, 2>;
  if (op.name() == "sub") return apply_directed<kDirectedSub, 2>;
  if (op.name() == "mul") return apply_directed<kDirectedMul, 2>;
  return op.name() == "fma" ? apply_directed<kDirectedFma, 3> : nullptr;
}

template <auto F, int Inputs>
Handler typed(const Opcode& op, const Instruction& i) {
  if (op.type() == Type::kF32) return i.mode ? apply_f32<F, Inputs> : apply<float, F, Inputs>;
  return op.type() == Type::kF64 && !i.mode ? apply<double, F, Inputs> : nullptr;
}

template <auto F, auto WithNan>
Handler extreme_of(const Opcode& op, const Instruction& i) {
  return op.has("NaN") ? typed<WithNan, 2>(op, i) : typed<F, 2>(op, i);
}

using Family = Handler (*)(const Opcode&, const Instruction&);
const std::unordered_map<std::string_view, Family> kFamilies = {
    {"add", typed<kAdd, 2>},
    {"sub", typed<kSub, 2>},
    {"mul", typed<kMul, 2>},
    {"fma", typed<kFma, 3>},
    {"mad", typed<kFma, 3>},
    {"div", typed<kDiv, 2>},
    {"min", extreme_of<kMin, kMinNan>},
    {"max", extreme_of<kMax, kMaxNan>},
    {"neg", typed<kNeg, 1>},
    {"abs", typed<kAbs, 1>},
    {"sqrt", typed<kSqrt, 1>},
    {"rcp", typed<kReciprocal, 1>},
    {"rsqrt", typed<kReciprocalRoot, 1>},
    {"sin", typed<kSin, 1>},
    {"cos", typed<kCos, 1>},
    {"tanh", typed<kTanh, 1>},
    {"ex2", typed<kExp2, 1>},
    {"lg2", typed<kLog2, 1>},
    {"copysign", typed<kCopySign, 2>}};

}  // namespace

Handler float_handler(const Opcode& op, Instruction& i) {
  const auto found = kFamilies.find(op.name());
  if (found == kFamilies.end() || !is_float(op.type())) return nullptr;
  if (op.has("rz") || op.has("rm") || op.has("rp")) return directed_of(op, i);
  if (op.has("relu")) return nullptr;
  i.mode = (op.has("ftz") ? kFlush : 0) | (op.has("sat") ? kSaturate : 0);
  return found->second(op, i);
}

}  // namespace tessera::virtual_gpu
