// SPDX-License-Identifier: Apache-2.0
// The parsed form of PTX. Each instruction is decoded once, into a handler that executes all lanes
// of a warp, and rows of registers. Functions that a kernel calls are inlined.
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
  std::vector<std::pair<int, int>> parameters;  // Offset and size in bytes.
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

// How the next instruction is determined. kWarp: all lanes of the mask must have reached it.
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
  bool negated = false;        // The guard is negated.
  bool negated_input = false;  // The last input predicate is negated.
  bool strict = false;         // Undefined inputs are a fault; else outputs become undefined.
  bool selects = false;        // selp: only the selected operand must be defined.
  bool is_signed = false;      // Loaded values are sign-extended.
  bool relaxed = false;        // Volatile, relaxed or acquire: no race with atomics.
  bool acquires = false, releases = false;  // A fence after or before it.
  uint8_t outputs = 0, inputs = 0, bytes = 0;
  Operand guard = kNoOperand;
  std::array<Operand, 16> o{};      // Outputs, then inputs.
  int64_t offset = 0, offset2 = 0;  // Added to the address, and to the second one (cp.async).
  // Branches: index of an instruction or table. Flow::kWarp: index of the operand with the mask of
  // lanes; -1: all lanes.
  int32_t target = -1;
  uint32_t mode = 0;  // Defined by the handler.
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

// A parsed operand: a register, constant, vector or address.
struct Argument {
  std::vector<Operand> parts;  // More than one: a vector, or "a|p".
  int64_t offset = 0;
  Space space = Space::kGeneric;  // kLocal for symbols in local memory.
  bool negated = false;
  bool is_address = false;
};

// Return null if the family does not have the instruction. They may set mode and other fields.
Handler integer_handler(const Opcode& op, Instruction& instruction);
Handler float_handler(const Opcode& op, Instruction& instruction);
Handler convert_handler(const Opcode& op, Instruction& instruction);
Handler memory_handler(const Opcode& op, Instruction& instruction);
Handler warp_handler(const Opcode& op, Instruction& instruction);
// Throws Fault if no family has it.
Instruction decode(const Opcode& op, const std::vector<Argument>& arguments);

// A place in the source. Outer: the place of the call, if inlined.
struct Location {
  int file = 0, line = 0, outer_file = 0, outer_line = 0;
};

// Special registers, except clocks, which have their own instruction.
inline constexpr std::string_view kSpecialNames[] = {
    "%tid.x",       "%tid.y",       "%tid.z",
    "%ntid.x",      "%ntid.y",      "%ntid.z",
    "%ctaid.x",     "%ctaid.y",     "%ctaid.z",
    "%nctaid.x",    "%nctaid.y",    "%nctaid.z",
    "%laneid",      "%warpid",      "%nwarpid",
    "%lanemask_eq", "%lanemask_lt", "%lanemask_le",
    "%lanemask_gt", "%lanemask_ge", "%dynamic_smem_size",
    "%smid",        "%gridid"};

// A variable of a module, in global or constant memory.
struct Variable {
  std::string name;
  uint64_t bytes = 0;
  std::vector<std::byte> initial;  // The rest is zero.
};

// A constant that is known at launch: the address of dynamic shared memory or of a variable.
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
  std::vector<std::string_view> texts;  // Views of the module's PTX.
  int rows = 0;                         // Rows of registers.
  int parameter_bytes = 0;
  int local_bytes = 0;
};

class Module {
 public:
  std::vector<std::string> kernel_names;  // In the order of the PTX.
  // Returns null if the module has no such kernel. Parses a kernel at its first use, because most
  // runs use few of a module's kernels. Throws Fault.
  const Kernel* kernel(std::string_view name) const;
  std::function<Kernel(std::string_view name)> parse;
  std::vector<Variable> variables;
  std::map<int, std::string> files;
  // Addresses of the variables on the device. Allocates them at the first use.
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
  uint64_t resident_blocks = 1;  // Number of blocks that run interleaved.
  bool check_races = true;
  bool log_accesses = true;
  int device = 0;
  uint64_t max_instructions = uint64_t{1} << 32;  // Executed by warps; more is a fault.
};

}  // namespace tessera::virtual_gpu
