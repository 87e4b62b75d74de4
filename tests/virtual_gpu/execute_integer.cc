// SPDX-License-Identifier: Apache-2.0
// Integer, bit, comparison and selection instructions. Every reader truncates a row to its type;
// sub-word results are zero-extended.
#include <algorithm>
#include <bit>
#include <type_traits>
#include <unordered_map>

#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/warp.h"

namespace tessera::virtual_gpu {
namespace {

template <typename T>
uint64_t word(T x) {
  return static_cast<std::make_unsigned_t<T>>(x);
}

template <typename T, auto F, int Inputs>
void apply(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  const Row& b = w.row(i.o[Inputs > 1 ? 2 : 1]);
  const Row& c = w.row(i.o[Inputs > 2 ? 3 : 1]);
  w.write(i.o[0], mask, [&](int l) {
    if constexpr (Inputs == 1) return word<T>(static_cast<T>(F(static_cast<T>(a[l]))));
    if constexpr (Inputs == 2)
      return word<T>(static_cast<T>(F(static_cast<T>(a[l]), static_cast<T>(b[l]))));
    if constexpr (Inputs == 3)
      return word<T>(
          static_cast<T>(F(static_cast<T>(a[l]), static_cast<T>(b[l]), static_cast<T>(c[l]))));
  });
}

// The handler of F for the instruction's type. Unsigned: signs do not matter.
template <auto F, int Inputs, bool Unsigned = false>
Handler typed(const Opcode& op, Instruction&) {
  switch (op.type()) {
    case Type::kS16:
      if constexpr (!Unsigned) return apply<int16_t, F, Inputs>;
      [[fallthrough]];
    case Type::kU16:
    case Type::kB16:
      return apply<uint16_t, F, Inputs>;
    case Type::kS32:
      if constexpr (!Unsigned) return apply<int32_t, F, Inputs>;
      [[fallthrough]];
    case Type::kU32:
    case Type::kB32:
      return apply<uint32_t, F, Inputs>;
    case Type::kS64:
      if constexpr (!Unsigned) return apply<int64_t, F, Inputs>;
      [[fallthrough]];
    case Type::kU64:
    case Type::kB64:
      return apply<uint64_t, F, Inputs>;
    default:
      return nullptr;
  }
}

template <typename T>
using Wide =
    std::conditional_t<sizeof(T) == 8,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSub = [](auto a, auto b) { return a - b; };
constexpr auto kMulLow = [](auto a, auto b) { return uint64_t{a} * b; };
constexpr auto kMulHigh = [](auto a, auto b) {
  using T = decltype(a);
  return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) >> (8 * sizeof(T));
};
constexpr auto kMadLow = [](auto a, auto b, auto c) { return uint64_t{a} * b + c; };
constexpr auto kMadHigh = [](auto a, auto b, auto c) {
  using T = std::make_unsigned_t<decltype(a)>;
  return static_cast<T>(static_cast<T>(kMulHigh(a, b)) + static_cast<T>(c));
};
// Division by zero gives all ones; the smallest number / -1 wraps.
constexpr auto kDiv = [](auto a, auto b) {
  using T = decltype(a);
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1))
    return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
};
constexpr auto kRem = [](auto a, auto b) {
  using T = decltype(a);
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T{0};
  return static_cast<T>(a % b);
};
constexpr auto kMin = [](auto a, auto b) { return std::min(a, b); };
constexpr auto kMax = [](auto a, auto b) { return std::max(a, b); };
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kNot = [](auto a) { return ~a; };
constexpr auto kCnot = [](auto a) { return a == 0; };
constexpr auto kNeg = [](auto a) { return 0 - a; };
constexpr auto kAbs = [](auto a) {
  using U = std::make_unsigned_t<decltype(a)>;
  return a < 0 ? static_cast<U>(0 - static_cast<U>(a)) : static_cast<U>(a);
};
constexpr auto kPopc = [](auto a) { return std::popcount(a); };
constexpr auto kClz = [](auto a) { return std::countl_zero(a); };
constexpr auto kBrev = [](auto a) {
  decltype(a) result = 0;
  for (size_t k = 0; k < 8 * sizeof(a); ++k) result = result << 1 | (a >> k & 1);
  return result;
};
constexpr auto kSad = [](auto a, auto b, auto c) {
  using U = std::make_unsigned_t<decltype(a)>;
  return static_cast<U>(c) +
         (a < b ? static_cast<U>(b) - static_cast<U>(a) : static_cast<U>(a) - static_cast<U>(b));
};
constexpr auto kMul24 = [](auto a, auto b) {
  using T = decltype(a);
  return (Wide<T>{static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << 8)} >> 8) *
         (Wide<T>{static_cast<T>(static_cast<std::make_unsigned_t<T>>(b) << 8)} >> 8);
};

// The amount of a shift is 32 bits and is clamped.
template <typename T, bool Left>
void shift(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  const Row& b = w.row(i.o[2]);
  constexpr uint32_t kBits = 8 * sizeof(T);
  w.write(i.o[0], mask, [&](int l) {
    const auto n = static_cast<uint32_t>(b[l]);
    const T x = static_cast<T>(a[l]);
    if (Left) return n >= kBits ? 0 : word<T>(static_cast<T>(x << n));
    if (std::is_signed_v<T>) return word<T>(static_cast<T>(x >> std::min(n, kBits - 1)));
    return n >= kBits ? 0 : word<T>(static_cast<T>(x >> n));
  });
}
template <bool Left>
Handler shift_of(const Opcode& op, Instruction&) {
  switch (op.type()) {
    case Type::kS16:
      if constexpr (!Left) return shift<int16_t, false>;
      [[fallthrough]];
    case Type::kU16:
    case Type::kB16:
      return shift<uint16_t, Left>;
    case Type::kS32:
      if constexpr (!Left) return shift<int32_t, false>;
      [[fallthrough]];
    case Type::kU32:
    case Type::kB32:
      return shift<uint32_t, Left>;
    case Type::kS64:
      if constexpr (!Left) return shift<int64_t, false>;
      [[fallthrough]];
    case Type::kU64:
    case Type::kB64:
      return shift<uint64_t, Left>;
    default:
      return nullptr;
  }
}

template <typename T, typename Result>
void multiply_wide(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  const Row& b = w.row(i.o[2]);
  const bool adds = i.inputs == 3;
  const Row& c = w.row(i.o[adds ? 3 : 2]);
  w.write(i.o[0], mask, [&](int l) {
    const auto product =
        static_cast<Result>(static_cast<T>(a[l])) * static_cast<Result>(static_cast<T>(b[l]));
    return word<Result>(static_cast<Result>(word<Result>(product) + (adds ? c[l] : 0)));
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
  if constexpr (Adds) {
    if (op.has("hi")) return typed<kMadHigh, 3>(op, i);
    return op.has("lo") ? typed<kMadLow, 3, true>(op, i) : nullptr;
  } else {
    if (op.has("hi")) return typed<kMulHigh, 2>(op, i);
    return op.has("lo") ? typed<kMulLow, 2, true>(op, i) : nullptr;
  }
}

// A comparison gives the bits: less, equal, greater, unordered.
constexpr uint32_t kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8;
uint32_t comparison_of(const Opcode& op) {
  static const std::unordered_map<std::string_view, uint32_t> names = {
      {"eq", kEqual},
      {"ne", kLess | kGreater},
      {"lt", kLess},
      {"le", kLess | kEqual},
      {"gt", kGreater},
      {"ge", kGreater | kEqual},
      {"lo", kLess},
      {"ls", kLess | kEqual},
      {"hi", kGreater},
      {"hs", kGreater | kEqual},
      {"equ", kEqual | kUnordered},
      {"neu", kLess | kGreater | kUnordered},
      {"ltu", kLess | kUnordered},
      {"leu", kLess | kEqual | kUnordered},
      {"gtu", kGreater | kUnordered},
      {"geu", kGreater | kEqual | kUnordered},
      {"num", kLess | kEqual | kGreater},
      {"nan", kUnordered}};
  const auto found = op.parts.size() > 1 ? names.find(op.parts[1]) : names.end();
  return found == names.end() ? 0 : found->second;
}
constexpr uint32_t kWithAnd = 16, kWithOr = 32, kWithXor = 64, kFlush = 128;

template <typename T>
T loaded(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) return float_of(bits);
  if constexpr (std::is_same_v<T, double>) return double_of(bits);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
}

template <typename T>
uint32_t compare(const Warp& w, const Instruction& i) {
  const Row& a = w.row(i.o[i.outputs]);
  const Row& b = w.row(i.o[i.outputs + 1]);
  uint32_t result = 0;
  for (int l = 0; l < kLanes; ++l) {
    T x = loaded<T>(a[l]), y = loaded<T>(b[l]);
    if constexpr (std::is_same_v<T, float>)
      if (i.mode & kFlush) x = flush(x), y = flush(y);
    const uint32_t order = x < y ? kLess : x == y ? kEqual : x > y ? kGreater : kUnordered;
    result |= static_cast<uint32_t>((i.mode & order) != 0) << l;
  }
  return result;
}

template <typename T>
void set_predicate(Warp& w, const Instruction& i, uint32_t mask) {
  const uint32_t result = compare<T>(w, i);
  uint32_t first = result, second = ~result;
  if (i.inputs == 3) {
    const uint32_t given = w.predicate(i.o[i.outputs + 2]);
    const uint32_t other = i.negated_input ? ~given : given;
    const auto joined = [&](uint32_t x) {
      return i.mode & kWithAnd ? x & other : i.mode & kWithOr ? x | other : x ^ other;
    };
    first = joined(first);
    second = joined(second);
  }
  if (i.outputs > 1) w.write_predicate(i.o[1], mask, second);
  w.write_predicate(i.o[0], mask, first);
}

template <typename T, bool AsFloat>
void set_value(Warp& w, const Instruction& i, uint32_t mask) {
  const uint32_t result = compare<T>(w, i);
  w.write(i.o[0], mask, [&](int l) {
    return result >> l & 1 ? uint64_t{AsFloat ? 0x3f800000u : 0xffffffffu} : 0;
  });
}

template <typename T>
Handler comparison_handler(const Opcode& op) {
  if (op.name() == "setp") return set_predicate<T>;
  return op.type() == Type::kF32 ? set_value<T, true> : set_value<T, false>;
}

Handler compare_of(const Opcode& op, Instruction& i) {
  i.mode = comparison_of(op);
  if (!i.mode) return nullptr;
  i.mode |= (op.has("and")   ? kWithAnd
             : op.has("or")  ? kWithOr
             : op.has("xor") ? kWithXor
                             : 0) |
            (op.has("ftz") ? kFlush : 0);
  switch (op.types.empty() ? Type::kNone : op.types.back()) {
    case Type::kS16:
      return comparison_handler<int16_t>(op);
    case Type::kU16:
    case Type::kB16:
      return comparison_handler<uint16_t>(op);
    case Type::kS32:
      return comparison_handler<int32_t>(op);
    case Type::kU32:
    case Type::kB32:
      return comparison_handler<uint32_t>(op);
    case Type::kS64:
      return comparison_handler<int64_t>(op);
    case Type::kU64:
    case Type::kB64:
      return comparison_handler<uint64_t>(op);
    case Type::kF32:
      return comparison_handler<float>(op);
    case Type::kF64:
      return comparison_handler<double>(op);
    default:
      return nullptr;
  }
}

void select(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  const Row& b = w.row(i.o[2]);
  const uint32_t p = w.predicate(i.o[3]);
  w.write(i.o[0], mask, [&](int l) { return p >> l & 1 ? a[l] : b[l]; });
}
Handler select_of(const Opcode& op, Instruction&) {
  return op.type() == Type::kNone ? nullptr : select;
}

constexpr auto kBfe = [](auto a, uint32_t position, uint32_t length) {
  using T = decltype(a);
  constexpr uint32_t kBits = 8 * sizeof(T);
  position &= 255, length &= 255;
  if (length == 0) return T{0};
  const uint32_t sign_at = std::min(position + length - 1, kBits - 1);
  const bool negative = std::is_signed_v<T> && (word(a) >> sign_at & 1);
  const uint64_t low = length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
  const uint64_t field = position >= kBits ? 0 : word(a) >> position;
  const uint32_t kept = std::min(length, position >= kBits ? 0 : kBits - position);
  const uint64_t extension = kept >= 64 ? 0 : ~uint64_t{0} << kept;
  return static_cast<T>((field & low) | (negative ? extension : 0));
};
template <typename T>
void extract_bits(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[3]);
  w.write(i.o[0], mask, [&](int l) {
    return word<T>(
        kBfe(static_cast<T>(a[l]), static_cast<uint32_t>(b[l]), static_cast<uint32_t>(c[l])));
  });
}
Handler extract_of(const Opcode& op, Instruction&) {
  switch (op.type()) {
    case Type::kU32:
      return extract_bits<uint32_t>;
    case Type::kS32:
      return extract_bits<int32_t>;
    case Type::kU64:
      return extract_bits<uint64_t>;
    case Type::kS64:
      return extract_bits<int64_t>;
    default:
      return nullptr;
  }
}

template <typename T>
void insert_bits(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[3]), &d = w.row(i.o[4]);
  constexpr uint32_t kBits = 8 * sizeof(T);
  w.write(i.o[0], mask, [&](int l) {
    const uint32_t position = c[l] & 255, length = d[l] & 255;
    if (position >= kBits) return word<T>(static_cast<T>(b[l]));
    const T low = length >= kBits ? static_cast<T>(-1) : static_cast<T>((T{1} << length) - 1);
    const T field = static_cast<T>(low << position);
    return word<T>((static_cast<T>(b[l]) & ~field) | (static_cast<T>(a[l]) << position & field));
  });
}
Handler insert_of(const Opcode& op, Instruction&) {
  return op.type() == Type::kB32   ? insert_bits<uint32_t>
         : op.type() == Type::kB64 ? insert_bits<uint64_t>
                                   : nullptr;
}

void permute(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[3]);
  w.write(i.o[0], mask, [&](int l) {
    const uint64_t bytes = (a[l] & 0xffffffff) | b[l] << 32;
    uint64_t result = 0;
    for (int k = 0; k < 4; ++k) {
      const uint64_t selector = c[l] >> (4 * k) & 15;
      const uint64_t byte = bytes >> (8 * (selector & 7)) & 255;
      const uint64_t sign = byte & 128 ? 255 : 0;
      result |= (selector & 8 ? sign : byte) << (8 * k);
    }
    return result;
  });
}
Handler permute_of(const Opcode& op, Instruction&) {
  return op.type() == Type::kB32 && op.parts.size() == 2 ? permute : nullptr;
}

template <bool Left, bool Clamp>
void funnel(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[3]);
  w.write(i.o[0], mask, [&](int l) {
    const uint32_t n = static_cast<uint32_t>(c[l]);
    const uint32_t amount = Clamp ? std::min(n, 32u) : n & 31;
    const uint64_t both = b[l] << 32 | (a[l] & 0xffffffff);
    return (Left ? both << amount >> 32 : both >> amount) & 0xffffffff;
  });
}
// Left by 32 keeps all of the low word, which `both << 32 >> 32` is.
Handler funnel_of(const Opcode& op, Instruction&) {
  if (op.has("l")) return op.has("clamp") ? funnel<true, true> : funnel<true, false>;
  return op.has("clamp") ? funnel<false, true> : funnel<false, false>;
}

void logic3(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[3]);
  const uint64_t table = w.row(i.o[4])[0];
  w.write(i.o[0], mask, [&](int l) {
    uint64_t result = 0;
    for (int k = 0; k < 8; ++k) {
      if (!(table >> k & 1)) continue;
      result |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
    }
    return result & 0xffffffff;
  });
}
Handler logic3_of(const Opcode& op, Instruction&) {
  return op.type() == Type::kB32 ? logic3 : nullptr;
}

// The position of the most significant bit that is not a copy of the sign; -1: none.
template <typename T>
void find_bit(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) {
    const T x = static_cast<T>(a[l]);
    const auto bits = static_cast<std::make_unsigned_t<T>>(x < 0 ? ~x : x);
    const int position = static_cast<int>(8 * sizeof(T)) - 1 - std::countl_zero(bits);
    const int amount = static_cast<int>(8 * sizeof(T)) - 1 - position;
    return word<int32_t>(i.mode && bits ? amount : position);
  });
}
Handler find_of(const Opcode& op, Instruction& i) {
  i.mode = op.has("shiftamt");
  switch (op.type()) {
    case Type::kU32:
    case Type::kB32:
      return find_bit<uint32_t>;
    case Type::kS32:
      return find_bit<int32_t>;
    case Type::kU64:
      return find_bit<uint64_t>;
    case Type::kS64:
      return find_bit<int64_t>;
    default:
      return nullptr;
  }
}

// Sums of four products of bytes.
template <typename A, typename B>
void dot4(Warp& w, const Instruction& i, uint32_t mask) {
  const Row &a = w.row(i.o[1]), &b = w.row(i.o[2]), &c = w.row(i.o[3]);
  w.write(i.o[0], mask, [&](int l) {
    auto sum = static_cast<uint32_t>(c[l]);
    for (int k = 0; k < 4; ++k)
      sum +=
          static_cast<uint32_t>(static_cast<A>(a[l] >> (8 * k)) * static_cast<B>(b[l] >> (8 * k)));
    return uint64_t{sum};
  });
}
Handler dot4_of(const Opcode& op, Instruction&) {
  if (is_signed(op.type(0)))
    return is_signed(op.type(1)) ? dot4<int8_t, int8_t> : dot4<int8_t, uint8_t>;
  return is_signed(op.type(1)) ? dot4<uint8_t, int8_t> : dot4<uint8_t, uint8_t>;
}

template <auto F>
void predicates(Warp& w, const Instruction& i, uint32_t mask) {
  w.write_predicate(i.o[0], mask,
                    static_cast<uint32_t>(F(w.predicate(i.o[1]), w.predicate(i.o[i.inputs]))));
}
template <auto F, auto OfPredicates, int Inputs>
Handler logic_of(const Opcode& op, Instruction& i) {
  if (op.type() == Type::kPred) return predicates<OfPredicates>;
  return typed<F, Inputs, true>(op, i);
}
constexpr auto kNotFirst = [](auto a, auto) { return ~a; };

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
void move(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  w.write(i.o[0], mask, [&](int l) { return a[l]; });
}
Handler move_of(const Opcode& op, Instruction& i) {
  if (op.type() == Type::kPred) return predicates<kAnd>;
  if (i.outputs > 1) return unpack;
  return i.inputs > 1 ? pack : move;
}

void read_clock(Warp& w, const Instruction& i, uint32_t mask) {
  w.write(i.o[0], mask, [&](int) { return w.block.launch.instructions; });
}
Handler clock_of(const Opcode&, Instruction&) { return read_clock; }

using Family = Handler (*)(const Opcode&, Instruction&);
const std::unordered_map<std::string_view, Family>& families() {
  static const std::unordered_map<std::string_view, Family> names = {
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
      {"cnot", typed<kCnot, 1, true>},
      {"neg", typed<kNeg, 1, true>},
      {"abs", typed<kAbs, 1>},
      {"sad", typed<kSad, 3>},
      {"popc", typed<kPopc, 1, true>},
      {"clz", typed<kClz, 1, true>},
      {"brev", typed<kBrev, 1, true>},
      {"shl", shift_of<true>},
      {"shr", shift_of<false>},
      {"setp", compare_of},
      {"set", compare_of},
      {"selp", select_of},
      {"bfe", extract_of},
      {"bfi", insert_of},
      {"prmt", permute_of},
      {"shf", funnel_of},
      {"lop3", logic3_of},
      {"bfind", find_of},
      {"dp4a", dot4_of},
      {"mov", move_of},
      {"clock", clock_of}};
  return names;
}

}  // namespace

Handler integer_handler(const Opcode& op, Instruction& i) {
  if (op.name() == "mul24" && op.has("lo"))
    return op.type() == Type::kS32 ? apply<int32_t, kMul24, 2> : apply<uint32_t, kMul24, 2>;
  // Carries between instructions and saturating sums are not kept.
  if (op.has("cc") || (op.has("sat") && !is_float(op.type()))) return nullptr;
  const auto found = families().find(op.name());
  return found == families().end() ? nullptr : found->second(op, i);
}

}  // namespace tessera::virtual_gpu
