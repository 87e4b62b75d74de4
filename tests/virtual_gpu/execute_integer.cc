// SPDX-License-Identifier: Apache-2.0
// Integer, bit, comparison and selection instructions.
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "tests/virtual_gpu/lanes.h"

namespace tessera::virtual_gpu {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

// Returns the handler of F for the instruction's type.
template <typename T, bool IgnoreSign>
using Signed = std::conditional_t<IgnoreSign, Unsigned<T>, T>;
template <auto F, int Inputs, bool IgnoreSign = false>
Handler typed(const Opcode& op, Instruction&) {
  return for_integer(op.type(), [](auto zero) -> Handler {
    return apply<Signed<decltype(zero), IgnoreSign>, F, Inputs>;
  });
}
template <auto F, int Inputs, bool IgnoreSign = false>
Handler with_words(const Opcode& op, Instruction&) {
  return for_integer(op.type(), [](auto zero) -> Handler {
    return apply_words<Signed<decltype(zero), IgnoreSign>, F, Inputs>;
  });
}

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSub = [](auto a, auto b) { return a - b; };
constexpr auto kMulLow = [](auto a, auto b) { return uint64_t{a} * b; };
constexpr auto kMadLow = [](auto a, auto b, auto c) { return uint64_t{a} * b + c; };
constexpr auto kMulHigh = [](auto a, auto b) {
  using T = decltype(a);
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<Unsigned<T>>(Wide{a} * Wide{b} >> (8 * sizeof(T)));
};
constexpr auto kMadHigh = [](auto a, auto b, auto c) {
  return kMulHigh(a, b) + static_cast<Unsigned<decltype(a)>>(c);
};
// Division by zero gives all ones; the smallest number / -1 wraps.
constexpr auto kDiv = [](auto a, auto b) {
  using T = decltype(a);
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1))
    return static_cast<T>(0 - static_cast<Unsigned<T>>(a));
  return static_cast<T>(a / b);
};
constexpr auto kRem = [](auto a, auto b) {
  using T = decltype(a);
  if (b == 0) return a;
  return std::is_signed_v<T> && b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
};
constexpr auto kMin = [](auto a, auto b) { return std::min(a, b); };
constexpr auto kMax = [](auto a, auto b) { return std::max(a, b); };
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kNot = [](auto a) { return ~a; };
constexpr auto kNeg = [](auto a) { return 0 - a; };
constexpr auto kAbs = [](auto a) {
  const auto bits = static_cast<Unsigned<decltype(a)>>(a);
  return a < 0 ? 0 - bits : bits;
};
constexpr auto kPopc = [](auto a) { return std::popcount(a); };
constexpr auto kClz = [](auto a) { return std::countl_zero(a); };
constexpr auto kBrev = [](auto a) {
  decltype(a) result = 0;
  for (size_t k = 0; k < 8 * sizeof(a); ++k) result = result << 1 | (a >> k & 1);
  return result;
};

// The amount of a shift is 32 bits and is clamped.
constexpr auto kShl = [](auto a, uint64_t b) -> uint64_t {
  const auto n = static_cast<uint32_t>(b);
  return n >= 8 * sizeof(a) ? 0 : uint64_t{a} << n;
};
constexpr auto kShr = [](auto a, uint64_t b) {
  using T = decltype(a);
  const auto n = static_cast<uint32_t>(b);
  if (n < 8 * sizeof(T)) return static_cast<T>(a >> n);
  return static_cast<T>(a < 0 ? -1 : 0);
};
constexpr auto kBfe = [](auto a, uint64_t b, uint64_t c) {
  using T = decltype(a);
  constexpr uint32_t kBits = 8 * sizeof(T);
  const uint32_t position = b & 255, length = c & 255;
  if (length == 0) return T{0};
  const T shifted = kShr(a, position);  // Fills with the sign.
  if (position + length >= kBits) return shifted;
  const auto above = kBits - length;
  return static_cast<T>(static_cast<T>(static_cast<Unsigned<T>>(shifted) << above) >> above);
};
constexpr auto kBfi = [](auto a, uint64_t b, uint64_t c, uint64_t d) {
  using T = decltype(a);
  const uint32_t position = c & 255, length = d & 255;
  const T low = length >= 8 * sizeof(T) ? static_cast<T>(-1) : static_cast<T>((T{1} << length) - 1);
  const auto field = static_cast<T>(kShl(low, position));
  return static_cast<T>((static_cast<T>(b) & ~field) | (static_cast<T>(kShl(a, position)) & field));
};
constexpr auto kPermute = [](uint32_t a, uint64_t b, uint64_t c) {
  const uint64_t bytes = a | b << 32;
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t selector = c >> (4 * k) & 15;
    const uint32_t byte = bytes >> (8 * (selector & 7)) & 255;
    result |= (selector & 8 ? (byte & 128 ? 255 : 0) : byte) << (8 * k);
  }
  return result;
};
constexpr auto kLogic3 = [](uint32_t a, uint64_t b, uint64_t c, uint64_t table) {
  uint64_t result = 0;
  for (int k = 0; k < 8; ++k)
    if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  return static_cast<uint32_t>(result);
};
// shf: 64 bits shifted by up to 32.
template <bool Left, bool Clamp>
constexpr auto kFunnel = [](uint32_t a, uint64_t b, uint64_t c) {
  const auto n = static_cast<uint32_t>(c);
  const uint32_t amount = Clamp ? std::min(n, 32u) : n & 31;
  const uint64_t both = b << 32 | a;
  return static_cast<uint32_t>(Left ? both << amount >> 32 : both >> amount);
};
Handler funnel_of(const Opcode& op, Instruction&) {
  if (op.has("l"))
    return op.has("clamp") ? apply_words<uint32_t, kFunnel<true, true>, 3>
                           : apply_words<uint32_t, kFunnel<true, false>, 3>;
  return op.has("clamp") ? apply_words<uint32_t, kFunnel<false, true>, 3>
                         : apply_words<uint32_t, kFunnel<false, false>, 3>;
}

// Returns the position of the most significant bit that is not a copy of the sign, or its distance
// from the top; -1: none.
template <bool Distance>
constexpr auto kFindBit = [](auto a) {
  const auto bits = static_cast<Unsigned<decltype(a)>>(a < 0 ? ~a : a);
  const int zeros = std::countl_zero(bits);
  const int found = Distance ? zeros : static_cast<int>(8 * sizeof a) - 1 - zeros;
  return static_cast<uint32_t>(bits ? found : -1);
};
template <typename T, bool Distance>
void find_bit(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) { return uint64_t{kFindBit<Distance>(static_cast<T>(a[l]))}; });
}
Handler find_of(const Opcode& op, Instruction&) {
  return for_integer(op.type(), [&](auto zero) -> Handler {
    using T = decltype(zero);
    return op.has("shiftamt") ? find_bit<T, true> : find_bit<T, false>;
  });
}

// mul.wide and mad.wide: inputs of T, sums of twice its size.
template <typename T, typename Result>
void multiply_wide(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[i.inputs]);
  const bool adds = i.inputs == 3;
  w.write(i.o[0], mask, [&](int l) {
    const auto product = Result{static_cast<T>(a[l])} * Result{static_cast<T>(b[l])};
    return uint64_t{
        static_cast<Unsigned<Result>>(static_cast<uint64_t>(product) + (adds ? c[l] : 0))};
  });
}
template <bool Adds>
Handler multiply_of(const Opcode& op, Instruction& i) {
  if (op.has("wide")) {
    switch (op.type()) {
      case Type::kS16:
        return multiply_wide<int16_t, int32_t>;
      case Type::kU16:
        return multiply_wide<uint16_t, uint32_t>;
      case Type::kS32:
        return multiply_wide<int32_t, int64_t>;
      case Type::kU32:
        return multiply_wide<uint32_t, uint64_t>;
      default:
        return nullptr;
    }
  }
  const bool high = op.has("hi");
  if (!high && !op.has("lo")) return nullptr;
  if constexpr (Adds) return high ? typed<kMadHigh, 3>(op, i) : typed<kMadLow, 3, true>(op, i);
  return high ? typed<kMulHigh, 2>(op, i) : typed<kMulLow, 2, true>(op, i);
}

// A comparison is the set of relations for which it is true.
constexpr uint32_t kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8;
constexpr uint32_t kWithAnd = 16, kWithOr = 32, kWithXor = 64, kFlush = 128;
struct Comparison {
  std::string_view name;
  uint32_t orders;
};
constexpr Comparison kComparisons[] = {
    {"eq", kEqual},   {"ne", kLess | kGreater},  {"lt", kLess},      {"le", kLess | kEqual},
    {"gt", kGreater}, {"ge", kGreater | kEqual}, {"lo", kLess},      {"ls", kLess | kEqual},
    {"hi", kGreater}, {"hs", kGreater | kEqual}, {"nan", kUnordered}};

uint32_t orders_of(std::string_view name) {
  if (name == "num") return kLess | kEqual | kGreater;
  const auto* row = std::ranges::find(kComparisons, name, &Comparison::name);
  if (row != std::end(kComparisons)) return row->orders;
  if (!name.ends_with('u')) return 0;  // "ltu": or unordered.
  row = std::ranges::find(kComparisons, name.substr(0, name.size() - 1), &Comparison::name);
  return row == std::end(kComparisons) ? 0 : row->orders | kUnordered;
}

template <typename T>
void set_predicate(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[i.outputs]), &b = w.row(i.o[i.outputs + 1]);
  uint32_t result = 0;
  for (int l = 0; l < kLanes; ++l) {
    T x = value_of<T>(a[l]), y = value_of<T>(b[l]);
    if constexpr (std::is_same_v<T, float>)
      if (i.mode & kFlush) x = flush(x), y = flush(y);
    const uint32_t order = x < y ? kLess : x == y ? kEqual : x > y ? kGreater : kUnordered;
    result |= static_cast<uint32_t>((i.mode & order) != 0) << l;
  }
  uint32_t other = i.inputs == 3 ? w.predicate(i.o[i.outputs + 2]) : 0;
  if (i.negated_input) other = ~other;
  const auto joined = [&](uint32_t x) {
    return i.mode & kWithAnd ? x & other : i.mode & kWithOr ? x | other : x ^ other;
  };
  if (i.outputs > 1) w.write_predicate(i.o[1], mask, joined(~result));
  w.write_predicate(i.o[0], mask, joined(result));
}

Handler compare_of(const Opcode& op, Instruction& i) {
  i.mode = op.parts.size() > 1 ? orders_of(op.parts[1]) : 0;
  if (!i.mode) return nullptr;
  i.mode |= (op.has("and")  ? kWithAnd
             : op.has("or") ? kWithOr
                            : kWithXor) |
            (op.has("ftz") ? kFlush : 0);
  if (op.type() == Type::kF32) return set_predicate<float>;
  if (op.type() == Type::kF64) return set_predicate<double>;
  return for_integer(op.type(), [](auto zero) -> Handler { return set_predicate<decltype(zero)>; });
}

void select(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]);
  const uint32_t p = w.predicate(i.o[3]);
  w.write(i.o[0], mask, [&](int l) { return p >> l & 1 ? a[l] : b[l]; });
}

Handler select_of(const Opcode&, Instruction& i) {
  i.selects = true;
  return select;
}

template <auto F>
void predicates(Warp& w, const Instruction& i, uint32_t mask) {
  w.write_predicate(i.o[0], mask, F(w.predicate(i.o[1]), w.predicate(i.o[i.inputs])));
}
constexpr auto kNotFirst = [](uint32_t a, uint32_t) { return ~a; };
template <auto F, auto OfPredicates, int Inputs>
Handler logic_of(const Opcode& op, Instruction& i) {
  return op.type() == Type::kPred ? predicates<OfPredicates> : typed<F, Inputs, true>(op, i);
}

// Moves between one register and a vector of its parts, the lowest bits first.
void unpack(Warp& w, const Instruction& i, uint32_t mask) {
  const Row value = w.row(i.o[i.outputs]);
  const int bits = 8 * i.bytes / i.outputs;
  for (int k = 0; k < i.outputs; ++k)
    w.write(i.o[k], mask,
            [&](int l) { return value[l] >> (k * bits) & ((uint64_t{1} << bits) - 1); });
}
void pack(Warp& w, const Instruction& i, uint32_t mask) {
  const int bits = 8 * i.bytes / i.inputs;
  w.write(i.o[0], mask, [&](int l) {
    uint64_t value = 0;
    for (int k = 0; k < i.inputs; ++k)
      value |= (w.row(i.o[1 + k])[l] & ((uint64_t{1} << bits) - 1)) << (k * bits);
    return value;
  });
}
constexpr auto kCopy = [](uint64_t a) { return a; };
Handler move_of(const Opcode& op, Instruction& i) {
  if (op.type() == Type::kPred) return predicates<kAnd>;
  return i.outputs > 1 ? unpack : i.inputs > 1 ? pack : apply<uint64_t, kCopy, 1>;
}
void read_clock(Warp& w, const Instruction& i, uint32_t mask) {
  w.write(i.o[0], mask, [&](int) { return w.block.launch.instructions; });
}

template <Handler H>
Handler always(const Opcode&, Instruction&) {
  return H;
}

using Family = Handler (*)(const Opcode&, Instruction&);
const std::unordered_map<std::string_view, Family> kFamilies = {
    {"add", typed<kAdd, 2, true>},
    {"sub", typed<kSub, 2, true>},
    {"mul", multiply_of<false>},
    {"mad", multiply_of<true>},
    {"div", typed<kDiv, 2>},
    {"rem", typed<kRem, 2>},
    {"min", typed<kMin, 2>},
    {"max", typed<kMax, 2>},
    {"and", logic_of<kAnd, kAnd, 2>},
    {"or", logic_of<kOr, kOr, 2>},
    {"xor", logic_of<kXor, kXor, 2>},
    {"not", logic_of<kNot, kNotFirst, 1>},
    {"neg", typed<kNeg, 1, true>},
    {"abs", typed<kAbs, 1>},
    {"popc", typed<kPopc, 1, true>},
    {"clz", typed<kClz, 1, true>},
    {"brev", typed<kBrev, 1, true>},
    {"shl", with_words<kShl, 2, true>},
    {"shr", with_words<kShr, 2>},
    {"bfe", with_words<kBfe, 3>},
    {"bfi", with_words<kBfi, 4, true>},
    {"bfind", find_of},
    {"prmt", always<apply_words<uint32_t, kPermute, 3>>},
    {"lop3", always<apply_words<uint32_t, kLogic3, 4>>},
    {"shf", funnel_of},
    {"setp", compare_of},
    {"selp", select_of},
    {"mov", move_of},
    {"clock", always<read_clock>}};

}  // namespace

Handler integer_handler(const Opcode& op, Instruction& i) {
  // Carries between instructions, saturating sums and modes of prmt are not computed.
  const bool unknown = op.has("cc") || (op.has("sat") && !is_float(op.type())) ||
                       (op.name() == "prmt" && op.parts.size() != 2);
  const auto found = kFamilies.find(op.name());
  return unknown || found == kFamilies.end() ? nullptr : found->second(op, i);
}

}  // namespace tessera::virtual_gpu
