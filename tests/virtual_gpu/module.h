// SPDX-License-Identifier: Apache-2.0
// The parsed form of PTX: instructions that are decoded once, into a handler that executes all
// lanes of a warp, and rows of registers. Functions that a kernel calls are copied into it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

struct KernelInfo {
  std::string name;
  std::vector<std::pair<int, int>> parameters;  // Offset and bytes of each.
  int static_shared_bytes = 0;
  int registers = 0;
};

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,  //
  kF16,
  kBf16,
  kF32,
  kF64,
  kF16x2,
  kBf16x2
};
int bytes_of(Type type);
bool is_signed(Type type);
bool is_float(Type type);

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParameter, kConstant };

// Who decides what runs next: kWarp instructions need all lanes of their mask at one place.
enum class Flow : uint8_t { kNext, kBranch, kTable, kExit, kBarrier, kWarp };

// A row of registers (32 lanes of 64 bits), or ~index of a row of constants.
using Operand = int32_t;
inline constexpr Operand kNoOperand = INT32_MIN;

class Warp;
struct Instruction;
using Handler = void (*)(Warp& warp, const Instruction& instruction, uint32_t mask);

struct Instruction {
  Handler run = nullptr;
  Flow flow = Flow::kNext;
  Space space = Space::kGeneric;
  bool negated = false;        // Of the guard.
  bool negated_input = false;  // Of the last predicate among the inputs.
  bool strict = false;         // Faults if an input is undefined; others pass undefinedness on.
  bool selects = false;        // selp: only the selected operand must be defined.
  bool is_signed = false;      // Loaded values are sign-extended.
  bool relaxed = false;        // Volatile, relaxed or acquire: no race with atomics.
  bool acquires = false, releases = false;  // A fence after it, or before it.
  uint8_t outputs = 0, inputs = 0, bytes = 0;
  Operand guard = kNoOperand;
  std::array<Operand, 16> o{};      // Outputs, then inputs.
  int64_t offset = 0, offset2 = 0;  // Added to the address, and to the second one (cp.async).
  // Of a branch: an instruction, or a table. Of Flow::kWarp: the operand with the mask of lanes, or
  // -1: all.
  int32_t target = -1;
  uint32_t mode = 0;  // Of the handler.
  int32_t location = 0;
  int32_t text = 0;
};

// The words of an instruction's name: "ld.global.nc.v4.u32".
struct Opcode {
  explicit Opcode(std::string_view text);
  bool has(std::string_view part) const;
  Type type(size_t index = 0) const { return index < types.size() ? types[index] : Type::kNone; }
  std::string_view name() const { return parts[0]; }
  std::vector<std::string_view> parts;
  std::vector<Type> types;
};

// An operand as written: a register, constant, vector or address.
struct Argument {
  std::vector<Operand> parts;  // More than one: a vector, or "a|p".
  int64_t offset = 0;
  Space space = Space::kGeneric;  // Of a symbol in local memory.
  bool negated = false;
  bool is_address = false;
};

// Null if the family does not know the instruction. They may set mode and other fields.
Handler integer_handler(const Opcode& op, Instruction& instruction);
Handler float_handler(const Opcode& op, Instruction& instruction);
Handler convert_handler(const Opcode& op, Instruction& instruction);
Handler memory_handler(const Opcode& op, Instruction& instruction);
Handler warp_handler(const Opcode& op, Instruction& instruction);
// Throws Fault if no family knows it.
Instruction decode(const Opcode& op, const std::vector<Argument>& arguments);

struct Location {
  int file = 0, line = 0, outer_file = 0, outer_line = 0;  // Outer: where it was inlined.
};

// Special registers; those of the clock are read by an instruction of their own.
inline constexpr std::string_view kSpecialNames[] = {
    "%tid.x",       "%tid.y",       "%tid.z",
    "%ntid.x",      "%ntid.y",      "%ntid.z",
    "%ctaid.x",     "%ctaid.y",     "%ctaid.z",
    "%nctaid.x",    "%nctaid.y",    "%nctaid.z",
    "%laneid",      "%warpid",      "%nwarpid",
    "%lanemask_eq", "%lanemask_lt", "%lanemask_le",
    "%lanemask_gt", "%lanemask_ge", "%dynamic_smem_size",
    "%smid",        "%gridid"};

struct Variable {  // Of a module, in global or constant memory.
  std::string name;
  uint64_t bytes = 0;
  std::vector<std::byte> initial;  // Zeros follow it.
};

// A constant that is known at launch: the address of dynamic shared memory, or of a variable.
struct Fixup {
  int constant = 0;
  int variable = -1;  // -1: dynamic shared memory.
  int64_t offset = 0;
};

struct Kernel {
  KernelInfo info;
  std::vector<Instruction> code;
  std::vector<uint64_t> constants;
  std::vector<Fixup> fixups;
  std::vector<std::pair<int, Operand>> specials;  // Index of kSpecialNames.
  std::vector<std::vector<int>> tables;           // Targets of indirect branches.
  std::vector<Location> locations;
  std::vector<std::string_view> texts;  // As the module's PTX has them.
  int rows = 0;                         // Of registers.
  int parameter_bytes = 0;
  int local_bytes = 0;
};

class Module {
 public:
  std::vector<std::string> kernel_names;  // In the order of the PTX.
  // Null if the module has no such kernel. It is parsed when it is first asked for: most runs use
  // few of a module's kernels. Throws Fault.
  const Kernel* kernel(std::string_view name) const;
  std::function<Kernel(std::string_view name)> parse;
  std::vector<Variable> variables;
  std::map<int, std::string> files;
  // Where the variables lie, per device; made at the first use.
  const std::vector<uint64_t>& addresses(Memory& memory, int device) const;
  void forget_addresses() const;  // For a new Memory.

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, Kernel, std::less<>> kernels_;
  mutable std::map<int, std::vector<uint64_t>> addresses_;
};

// How a kernel is launched.
struct Grid {
  std::array<uint32_t, 3> blocks = {1, 1, 1};
  std::array<uint32_t, 3> threads = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
};

struct RunOptions {
  uint64_t seed = 0;             // Order of blocks and warps; 0: ascending.
  uint64_t resident_blocks = 1;  // That many take turns.
  bool check_races = true;
  bool log_accesses = true;
  int device = 0;
  uint64_t max_instructions = uint64_t{1} << 32;  // Of warps; more: it waits without end.
};

}  // namespace tessera::virtual_gpu
