// SPDX-License-Identifier: Apache-2.0
// Every opcode in the PTX of the CUDA device's kernels, and of the programs that it compiles at run
// time, has a test that compares it with the host.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "core/check/op_cases.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/io/file.h"
#include "plugins/cuda/device/nvrtc.h"
#include "plugins/cuda/kernels/elementwise/program.h"
#include "tests/virtual_gpu/device_state.h"
#include "tests/virtual_gpu/memory_opcode.h"
#include "tests/virtual_gpu/opcode_case.h"

namespace tessera::virtual_gpu {
namespace {

// Opcodes without a result. Tests of barriers, loops and asynchronous copies cover them
// (interpreter_test.cc, kernels_test.cc, memory_opcodes_test.cc).
const std::set<std::string> kControl = {"bar.sync",
                                        "bar.warp.sync",
                                        "bra",
                                        "bra.uni",
                                        "cp.async.commit_group",
                                        "cp.async.cg.shared.global",
                                        "cp.async.wait_group",
                                        "ret"};
// Opcodes that memory_opcodes_test.cc covers, beside loads and stores.
const std::set<std::string> kOfWarps = {"cvta.shared.u64",
                                        "cvta.to.global.u64",
                                        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
                                        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
                                        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
                                        "shfl.sync.bfly.b32",
                                        "shfl.sync.idx.b32",
                                        "shfl.sync.up.b32",
                                        "vote.sync.ballot.b32"};

// Opcodes that memory_opcodes_test.cc covers and only generated programs use.
const std::set<std::string> kOfPrograms = {"cvta.local.u64", "cvta.to.local.u64"};

std::set<std::string> opcodes_of(const std::string& ptx) {
  static const std::regex statement(
      R"(^\s*\{?\s*(?:@!?%\w+\s+)?([a-z][a-z0-9]*(?:\.[A-Za-z0-9_]+)*)(?:\s+[^:]|;))");
  std::set<std::string> opcodes;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    std::smatch parts;
    if (std::regex_search(line, parts, statement)) opcodes.insert(parts[1]);
  }
  return opcodes;
}

// Returns by opcode a kernel file that contains it.
std::map<std::string, std::string> used_opcodes() {
  std::map<std::string, std::string> used;
  for (const auto& entry :
       std::filesystem::directory_iterator(TESSERA_BINARY_DIR "/generated/cuda")) {
    if (entry.path().extension() != ".fatbin") continue;
    const std::string image = read_file(entry.path());
    for (const std::string& opcode : opcodes_of(std::string(ptx_of(image.data(), 80))))
      used.try_emplace(opcode, entry.path().stem().string() + ".cu");
  }
  return used;
}

// Returns by opcode a generated program that contains it. Covers all op cases, with each node alone
// and fused with others.
std::map<std::string, std::string> opcodes_of_programs() {
  std::map<std::string, std::string> used;
  const auto add = [&](const tessera::Graph& graph) {
    for (const tessera::Node& node : graph.nodes()) {
      if (!cuda::has_program(*node.op)) continue;
      const cuda::ElementwiseProgram program = cuda::make_program(graph, node);
      for (const std::string& opcode :
           opcodes_of(cuda::compile_text(program.name, program.text).ptx))
        used.try_emplace(opcode, program.name);
    }
  };
  for (const OpCase& row : all_op_cases()) {
    if (!cuda::has_program(*row.op)) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (dtype != DType::kF32 && !takes_floats(row)) continue;
      const tessera::Graph graph = lower(traced_case(row, dtype, Mesh()), Mesh());
      add(graph);
      add(fuse(graph));
    }
  }
  return used;
}

std::set<std::string> tested_opcodes() {
  std::set<std::string> tested = kControl;
  tested.insert(kOfWarps.begin(), kOfWarps.end());
  tested.insert(kOfPrograms.begin(), kOfPrograms.end());
  for (const auto& cases :
       {integer_cases(), bit_cases(), comparison_cases(), float_cases(), conversion_cases()})
    for (const OpcodeCase& each : cases)
      tested.insert(each.instruction.substr(0, each.instruction.find(' ')));
  return tested;
}

void require_used(const std::set<std::string>& names,
                  const std::map<std::string, std::string>& used) {
  for (const std::string& name : names) {
    INFO(name << " is in a list of this file, but not in use");
    REQUIRE(used.contains(name));
  }
}

// Compares loads and stores by their names; requires a case for each other opcode.
void require_tested(const std::map<std::string, std::string>& used) {
  const std::set<std::string> tested = tested_opcodes();
  std::vector<std::string> without_test;
  for (const auto& [opcode, user] : used) {
    if (const std::optional<MemoryOpcode> memory = memory_opcode(opcode))
      check(*memory);
    else if (!tested.contains(opcode))
      without_test.push_back(opcode + " of " + user);
  }
  REQUIRE(without_test == std::vector<std::string>());
}

}  // namespace

TEST_CASE("Opcodes: the names in a text of PTX are found") {
  REQUIRE(opcodes_of("\tmov.u32 \t%r1, %tid.x;\n$L_1:\n\t@%p1 bra \t$L_1;\n\tret;\n\t.loc 1 2 3\n"
                     "// add.s32 in a comment\n\t{ mov.b32 {%h1, %h2}, %r1; }\n}\n") ==
          std::set<std::string>{"mov.u32", "bra", "ret", "mov.b32"});
}

TEST_CASE("Opcodes: all that the kernels of the CUDA device use are compared with the host") {
  const std::map<std::string, std::string> used = used_opcodes();
  REQUIRE(used.size() > 150);
  require_used(kControl, used);
  require_used(kOfWarps, used);
  require_tested(used);
}

TEST_CASE("Opcodes: all that programs compiled at run time use are compared with the host") {
  const std::map<std::string, std::string> used = opcodes_of_programs();
  REQUIRE(used.size() > 50);
  require_used(kOfPrograms, used);
  require_tested(used);
}

}  // namespace tessera::virtual_gpu
