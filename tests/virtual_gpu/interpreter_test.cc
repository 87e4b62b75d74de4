// SPDX-License-Identifier: Apache-2.0
// Tests rare PTX (named barriers, uninitialised registers, invalid input) and clocks that run out
// of segments.
#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/virtual_gpu/parse_ptx.h"
#include "tests/virtual_gpu/races.h"
#include "tests/virtual_gpu/testing.h"

namespace tessera::virtual_gpu {
namespace {

std::string kernel_of(const std::string& body) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n.file 1 \"/source/test.cu\"\n"
         ".visible .entry run(.param .u64 out) {\n.reg .pred %p<8>;\n.reg .b32 %r<16>;\n"
         ".reg .b64 %d<8>;\n.shared .align 4 .b8 values[512];\n"
         "ld.param.u64 %d1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, 4;\n"
         "add.s64 %d2, %d1, %d2;\nmov.u32 %r2, values;\nshl.b32 %r3, %r1, 2;\n"
         "add.u32 %r3, %r2, %r3;\n.loc 1 10 0\n" +
         body + "\nret;\n}\n";
}

std::string fault_of(const std::string& body, uint32_t threads = 64) {
  TestDevice device(kernel_of(body));
  return device.fault("run", grid_of(1, threads), device.make<int>(threads));
}

std::string parse_fault(const std::string& text) {
  try {
    parse_ptx(text);
  } catch (const Fault& f) {
    return f.text;
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != text.npos;
}

// Warp 0 fills shared memory and arrives; warp 1 waits for it and reads.
std::string producer(const std::string& arrive, const std::string& wait) {
  return "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra consumer;\nst.shared.u32 [%r3], %r1;\n" + arrive +
         "\nbra done;\nconsumer:\n" + wait +
         "\nld.shared.u32 %r4, [%r3+-128];\nst.global.u32 [%d2], %r4;\ndone:\n";
}

}  // namespace

TEST_CASE("Named barriers: a producer arrives, a consumer waits") {
  TestDevice device(kernel_of(producer("bar.arrive 1, 64;", "bar.sync 1, 64;")));
  const uint64_t out = device.make<int>(64);
  device.run("run", grid_of(1, 64), out);
  const auto values = device.get<int>(out + 128, 32);
  for (int k = 0; k < 32; ++k) REQUIRE(values[k] == k);
  const std::string unordered = fault_of(producer("bar.arrive 1, 64;", ""));
  REQUIRE(contains(unordered, "kernel run, /source/test.cu:10: "));
  REQUIRE(contains(unordered, "shared "));
  REQUIRE(contains(fault_of(producer("", "bar.sync 1, 64;")), "do not reach it: 0"));
  REQUIRE(contains(fault_of(producer("bar.arrive 1, 96;", "bar.sync 1, 64;")), "barrier 1 for"));
  REQUIRE(contains(fault_of(producer("bar.arrive 16, 64;", "")), "barrier 16"));
  REQUIRE(contains(fault_of(producer("bar.sync 0;", "bar.sync 0;")), "divergent barrier"));
}

TEST_CASE("Uninitialised registers are a fault if they affect memory or control flow") {
  REQUIRE(contains(fault_of("add.s32 %r4, %r5, 1; st.global.u32 [%d2], %r4;"),
                   "an uninitialised register is used"));
  REQUIRE(contains(fault_of("@%p1 st.global.u32 [%d2], %r1;"), "uninitialised predicate"));
  // Only odd lanes set it; their values may be stored.
  const std::string half =
      "and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 1;\n@%p1 mov.u32 %r5, 3; mov.u32 %r6, %r5;\n";
  REQUIRE(fault_of(half + "@%p1 st.global.u32 [%d2], %r6;") == "");
  REQUIRE(contains(fault_of(half + "st.global.u32 [%d2], %r6;"), "thread (0, 0, 0)"));
  // Compilers compute the operand that selp does not select speculatively.
  REQUIRE(fault_of(half + "selp.b32 %r7, %r6, 0, %p1; st.global.u32 [%d2], %r7;") == "");
  REQUIRE(contains(fault_of(half + "selp.b32 %r7, 0, %r6, %p1; st.global.u32 [%d2], %r7;"),
                   "thread (0, 0, 0)"));
}

TEST_CASE("Lanes that diverge in a loop reconverge after it") {
  TestDevice device(
      kernel_of("and.b32 %r4, %r1, 7;\nmov.u32 %r5, 0;\nloop:\n"
                "add.u32 %r5, %r5, %r4;\nsetp.eq.u32 %p1, %r4, 0;\n"
                "@%p1 bra done;\nsub.u32 %r4, %r4, 1;\nbra loop;\ndone:\n"
                "activemask.b32 %r6;\nxor.b32 %r5, %r5, %r6;\n"
                "st.global.u32 [%d2], %r5;"));
  const uint64_t out = device.make<uint32_t>(48);
  device.run("run", grid_of(1, 48), out);
  const auto values = device.get<uint32_t>(out, 48);
  for (uint32_t t = 0; t < 48; ++t) {
    const uint32_t sum = t % 8 * (t % 8 + 1) / 2;
    REQUIRE(values[t] == (sum ^ (t < 32 ? 0xffffffff : 0xffff)));
  }
}

TEST_CASE("Shuffles clamp to their segment") {
  TestDevice device(
      kernel_of("shfl.sync.down.b32 %r4|%p1, %r1, 3, 0x1807, 0xffffffff;\n"
                "selp.b32 %r5, 100, 0, %p1;\nadd.u32 %r4, %r4, %r5;\n"
                "st.global.u32 [%d2], %r4;"));
  const uint64_t out = device.make<uint32_t>(32);
  device.run("run", grid_of(1, 32), out);
  const auto values = device.get<uint32_t>(out, 32);
  for (uint32_t t = 0; t < 32; ++t) REQUIRE(values[t] == (t % 8 + 3 < 8 ? t + 103 : t));
  REQUIRE(contains(fault_of("shfl.sync.idx.b32 %r4, %r1, 0, 31, 0xfffffffe;"),
                   "not in the instruction's mask"));
}

TEST_CASE("PTX that cannot be run is refused with its statement") {
  REQUIRE(contains(parse_fault(kernel_of("wgmma.fence.sync.aligned;")),
                   "does not know the instruction wgmma.fence.sync.aligned"));
  REQUIRE(contains(parse_fault(kernel_of("add.s32 %r1, %r99, 1;")), "%r99"));
  REQUIRE(contains(parse_fault(kernel_of("bra nowhere;")), "no label nowhere"));
  REQUIRE(contains(parse_fault(kernel_of("add.cc.u32 %r1, %r2, 1;")), "add.cc.u32"));
}

TEST_CASE("Races are found after segments were renumbered") {
  Clocks clocks;
  Shadow shadow(4096, true);
  const auto kind = [&](Access access, uint64_t offset, int thread) {
    return shadow.touch(access, offset, 4, thread, clocks).kind;
  };
  clocks.begin_block(2);
  REQUIRE(kind(Access::kWrite, 0, 0) == Conflict::kNone);
  clocks.begin_block(2);
  REQUIRE(kind(Access::kWrite, 64, 0) == Conflict::kNone);
  REQUIRE(kind(Access::kRead, 128, 40) == Conflict::kNone);
  while (!clocks.full()) clocks.synchronise(3, 3);
  shadow.renumber(clocks.block_begin());
  clocks.renumber();
  REQUIRE(kind(Access::kRead, 64, 33) == Conflict::kNone);  // A barrier lies between.
  REQUIRE(kind(Access::kWrite, 128, 0) == Conflict::kNone);
  const Conflict old = shadow.touch(Access::kRead, 0, 4, 0, clocks);
  REQUIRE(old.kind == Conflict::kStore);
  REQUIRE(old.other_block);
  REQUIRE(kind(Access::kRead, 128, 1) == Conflict::kStore);
  clocks.begin_block(2);
  REQUIRE(kind(Access::kWrite, 64, 0) == Conflict::kStore);
}

TEST_CASE("Accesses of a byte divide a cell") {
  Clocks clocks;
  Shadow shadow(4096, true);
  clocks.begin_block(1);
  REQUIRE(shadow.touch(Access::kWrite, 8, 4, 3, clocks).kind == Conflict::kNone);
  REQUIRE(shadow.touch(Access::kWrite, 4, 1, 0, clocks).kind == Conflict::kNone);
  REQUIRE(shadow.touch(Access::kWrite, 5, 1, 1, clocks).kind == Conflict::kNone);
  REQUIRE(shadow.touch(Access::kWrite, 5, 1, 2, clocks).kind == Conflict::kStore);
  REQUIRE(shadow.touch(Access::kWrite, 10, 2, 2, clocks).thread == 3);
  AccessLog log;
  shadow.log(1000, log);
  REQUIRE(log.writes.size() == 2);
  REQUIRE(log.writes[0].begin == 1004);
  REQUIRE(log.writes[0].end == 1006);
  REQUIRE(log.writes[1].end == 1012);
}

}  // namespace tessera::virtual_gpu
