// SPDX-License-Identifier: Apache-2.0
// Names of instructions and types; operands in the order that handlers expect.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/virtual_gpu/module.h"
#include "tests/virtual_gpu/text.h"

namespace tessera::virtual_gpu {
namespace {

struct TypeName {
  std::string_view name;
  Type type;
  int bytes;
};
constexpr TypeName kTypes[] = {
    {"pred", Type::kPred, 0},    {"b8", Type::kB8, 1},   {"b16", Type::kB16, 2},
    {"b32", Type::kB32, 4},      {"b64", Type::kB64, 8}, {"u8", Type::kU8, 1},
    {"u16", Type::kU16, 2},      {"u32", Type::kU32, 4}, {"u64", Type::kU64, 8},
    {"s8", Type::kS8, 1},        {"s16", Type::kS16, 2}, {"s32", Type::kS32, 4},
    {"s64", Type::kS64, 8},      {"f16", Type::kF16, 2}, {"bf16", Type::kBf16, 2},
    {"f32", Type::kF32, 4},      {"f64", Type::kF64, 8}, {"f16x2", Type::kF16x2, 4},
    {"bf16x2", Type::kBf16x2, 4}};

bool has_output(const Opcode& op) {
  for (const std::string_view name : {"st", "red", "cp", "bra", "brx", "ret", "exit", "trap"})
    if (op.name() == name) return false;
  const bool barrier = op.name() == "bar" || op.name() == "barrier";
  return !barrier || op.has("red");
}

void append(Instruction& to, const std::vector<Operand>& operands) {
  for (const Operand o : operands) {
    const auto at = static_cast<size_t>(to.outputs) + to.inputs;
    if (at >= to.o.size()) throw Fault{"PTX: too many operands"};
    to.o[at] = o;
    ++to.inputs;
  }
}

}  // namespace

int bytes_of(Type type) {
  const auto* const row = std::ranges::find(kTypes, type, &TypeName::type);
  return row == std::end(kTypes) ? 0 : row->bytes;
}

bool is_signed(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
bool is_float(Type type) { return type >= Type::kF16; }

Opcode::Opcode(std::string_view text) : parts(split(text, '.')) {
  for (size_t k = 1; k < parts.size(); ++k) {
    const auto* const row = std::ranges::find(kTypes, parts[k], &TypeName::name);
    if (row != std::end(kTypes)) types.push_back(row->type);
  }
}

bool Opcode::has(std::string_view part) const {
  return std::find(parts.begin() + 1, parts.end(), part) != parts.end();
}

Instruction decode(const Opcode& op, const std::vector<Argument>& arguments) {
  Instruction i;
  i.bytes = static_cast<uint8_t>(bytes_of(op.type()));
  i.is_signed = is_signed(op.type());
  size_t next = 0;
  if (has_output(op) && !arguments.empty()) {
    append(i, arguments[next++].parts);
    i.outputs = std::exchange(i.inputs, uint8_t{0});
  }
  bool first_address = true;
  for (; next < arguments.size(); ++next) {
    const Argument& argument = arguments[next];
    append(i, argument.parts);
    i.negated_input |= argument.negated;
    if (argument.is_address)
      (std::exchange(first_address, false) ? i.offset : i.offset2) = argument.offset;
    if (argument.space != Space::kGeneric) i.space = argument.space;
  }
  for (const auto family :
       {integer_handler, float_handler, convert_handler, memory_handler, warp_handler}) {
    if ((i.run = family(op, i))) {
      const bool moves_locals = op.name() == "st" && i.space == Space::kLocal;
      i.strict = (family == memory_handler || family == warp_handler) && !moves_locals;
      break;
    }
  }
  if (!i.run && i.flow != Flow::kBarrier)
    throw Fault{fmt::format("PTX: the virtual GPU does not know the instruction {}",
                            fmt::join(op.parts, "."))};
  return i;
}

}  // namespace tessera::virtual_gpu
