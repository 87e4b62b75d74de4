// SPDX-License-Identifier: Apache-2.0
// Names and declarations of PTX.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/virtual_gpu/module.h"
#include "tests/virtual_gpu/text.h"

namespace tessera::virtual_gpu {

// A declaration such as ".shared .align 4 .f32 name[32]", without the state space.
struct Declaration {
  std::string_view name;
  Type type = Type::kNone;
  uint64_t align = 1;
  uint64_t count = 1;  // Number of elements; 0: "name[]".
  std::string_view initial;
  uint64_t bytes() const { return count * static_cast<uint64_t>(bytes_of(type)); }
};
Declaration parse_declaration(std::string_view text);
std::vector<std::byte> parse_initial(const Declaration& declaration);

struct Symbol {
  enum Kind {
    kRegister,
    kShared,
    kDynamicShared,
    kModuleShared,
    kLocal,
    kParameter,
    kVariable,
    kTable
  };
  Kind kind = kRegister;
  int64_t value = 0;  // First row, address or index.
  int64_t count = 1;  // Number of registers "%r<count>"; bytes of kModuleShared.
  int64_t align = 1;
};

struct Jump {
  std::string label;
  int instruction = -1;
  int table = -1, entry = 0;  // If table >= 0: an entry of a table.
};

// A scope in braces, with the names that are visible inside.
struct Scope {
  std::map<std::string, Symbol, std::less<>> symbols;
  std::map<std::string, int, std::less<>> labels;
  std::vector<Jump> jumps;
  bool is_function = false;
};

// The text of a function.
struct Function {
  std::string_view name, results, parameters;
  size_t body = 0;  // Position after its '{'.
};
Function parse_header(std::string_view header, size_t body);

// Parses one kernel, with the functions that it calls.
class KernelParser {
 public:
  // The text must outlive the kernel.
  KernelParser(std::string_view text, const Scope& globals,
               const std::map<std::string, Function, std::less<>>& functions);
  Kernel parse(const Function& kernel);

 private:
  void parse_body(size_t position);
  void declare(std::string_view statement);
  void declare_registers(std::string_view statement);
  void statement(std::string_view text);
  Instruction instruction(const Opcode& op, std::string_view operands);
  void set_location(std::string_view directive);
  void call(std::string_view operands, Operand guard, bool negated);
  void emit(Instruction instruction);
  void jump(Instruction instruction, std::string_view label);
  void close_scope();
  Argument argument(std::string_view text);
  Operand operand(std::string_view text, Space* space);
  Operand constant(uint64_t value);
  Operand fixup(int variable);
  Operand special(std::string_view name);
  const Symbol* find(std::string_view name) const;
  int64_t allocate(int& used, uint64_t bytes, uint64_t align) const;

  std::string_view text_;
  const std::map<std::string, Function, std::less<>>& functions_;
  Kernel kernel_;
  std::vector<Scope> scopes_;
  std::map<uint64_t, Operand> constants_;
  std::map<int, Operand> specials_;
  int text_number_ = 0;
  int calls_ = 0;  // Nesting depth.
};

}  // namespace tessera::virtual_gpu
