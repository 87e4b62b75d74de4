// SPDX-License-Identifier: Apache-2.0
// Every opcode in the PTX of the CUDA device's kernels has a test that compares it with the host.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/io/file.h"
#include "tests/virtual_gpu/device_state.h"
#include "tests/virtual_gpu/memory_opcode.h"
#include "tests/virtual_gpu/opcode_case.h"

namespace tessera::virtual_gpu {
namespace {

// Without a value of their own: tests of barriers, loops and asynchronous copies run them
// (interpreter_test.cc, kernels_test.cc, memory_opcodes_test.cc).
const std::set<std::string> kControl = {"bar.sync",
                                        "bar.warp.sync",
                                        "bra",
                                        "bra.uni",
                                        "cp.async.commit_group",
                                        "cp.async.cg.shared.global",
                                        "cp.async.wait_group",
                                        "ret"};
// Of memory_opcodes_test.cc, beside loads and stores.
const std::set<std::string> kOfWarps = {"cvta.shared.u64",
                                        "cvta.to.global.u64",
                                        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
                                        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
                                        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
                                        "shfl.sync.bfly.b32",
                                        "shfl.sync.idx.b32",
                                        "shfl.sync.up.b32",
                                        "vote.sync.ballot.b32"};

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

// For each opcode a kernel file that has it.
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

std::set<std::string> tested_opcodes() {
  std::set<std::string> tested = kControl;
  tested.insert(kOfWarps.begin(), kOfWarps.end());
  for (const auto& cases :
       {integer_cases(), bit_cases(), comparison_cases(), float_cases(), conversion_cases()})
    for (const OpcodeCase& each : cases)
      tested.insert(each.instruction.substr(0, each.instruction.find(' ')));
  return tested;
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
  for (const auto& names : {kControl, kOfWarps})
    for (const std::string& name : names) {
      INFO(name << " is in a list of this file, and no kernel has it");
      REQUIRE(used.contains(name));
    }
  const std::set<std::string> tested = tested_opcodes();
  for (const auto& [opcode, file] : used) {
    INFO(opcode << " of " << file << " has no test that compares it with the host");
    if (const std::optional<MemoryOpcode> memory = memory_opcode(opcode))
      check(*memory);
    else
      REQUIRE(tested.contains(opcode));
  }
}

}  // namespace tessera::virtual_gpu
