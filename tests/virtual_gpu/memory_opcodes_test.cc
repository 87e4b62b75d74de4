// SPDX-License-Identifier: Apache-2.0
// Loads, stores, exchanges within a warp, and matrix instructions against host arithmetic.
#include <array>
#include <bit>
#include <cstring>
#include <regex>
#include <span>

#include "tests/virtual_gpu/memory_opcode.h"
#include "tests/virtual_gpu/opcode_case.h"

namespace tessera::virtual_gpu {
namespace {

constexpr int kMemoryThreads = 64;
constexpr int kPieceBytes = 32;  // Bytes of memory per thread.

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(size_t count) {
  std::mt19937 random(5);
  Bytes bytes(count);
  for (uint8_t& each : bytes) each = static_cast<uint8_t>(random());
  return bytes;
}

// A kernel whose %d1 and %d2 are the thread's pieces of `in` and `out`, %r2 its piece of shared
// memory, %d10 that of local memory and %r1 its number.
std::string kernel_around(const std::string& body) {
  return fmt::format(
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry run(.param .u64 in, .param .u64 out, .param .align 16 .b8 bytes[{0}]) {{\n"
      ".reg .pred %p<5>; .reg .b16 %h<9>; .reg .b32 %r<12>; .reg .f32 %f<9>; .reg .b64 %d<12>;\n"
      ".reg .f64 %g<9>; .shared .align 16 .b8 pieces[{1}]; .local .align 16 .b8 own[{0}];\n"
      "ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x;\n"
      "mad.wide.u32 %d1, %r1, {0}, %d1; mad.wide.u32 %d2, %r1, {0}, %d2;\n"
      "mov.u32 %r2, pieces; mad.lo.s32 %r2, %r1, {0}, %r2; mov.u64 %d10, own;\n{2}\nret;\n}}\n",
      kPieceBytes, kMemoryThreads * kPieceBytes, body);
}

// Runs a kernel on `in`. `parameter`: bytes appended to its parameters. Returns its output.
Bytes result_of(const std::string& body, const Bytes& in, const Bytes& before,
                std::span<const uint8_t, kPieceBytes> parameter) {
  TestDevice device(kernel_around(body));
  const uint64_t input = device.put(in), output = device.put(before);
  std::array<uint64_t, kPieceBytes / 8> words;
  std::memcpy(words.data(), parameter.data(), kPieceBytes);
  REQUIRE(device.fault("run", grid_of(1, kMemoryThreads), input, output, words[0], words[1],
                       words[2], words[3]) == "");
  return device.get<uint8_t>(output, before.size());
}

// Returns the register list: "{%r4, %r5}", or "%r4" for one.
std::string registers(const MemoryOpcode& opcode) {
  std::string list;
  for (int i = 0; i < opcode.count; ++i)
    list += fmt::format("{}%{}{}", i > 0 ? ", " : "", opcode.letter(), 4 + i);
  return opcode.count > 1 ? "{" + list + "}" : list;
}

std::string copy_piece(const std::string& load, const std::string& from, const std::string& store,
                       const std::string& to) {
  std::string text;
  for (int at = 0; at < kPieceBytes; at += 8)
    text += fmt::format("{} %d9, [{}+{}]; {} [{}+{}], %d9;\n", load, from, at, store, to, at);
  return text;
}

// Whether the thread's piece is copied to this memory and back.
bool is_in_copy(const MemoryOpcode& opcode) {
  return opcode.space == "shared" || opcode.space == "local";
}
std::string piece_in(const std::string& space) {
  return space == "shared" ? "%r2" : space == "local" ? "%d10" : "%d3";
}

// Returns the bits of an element, sign-extended or zero-extended to its register.
U extended(const MemoryOpcode& opcode, const uint8_t* at) {
  U bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(opcode.bytes));
  const int size = 8 * opcode.bytes;
  const int held = std::max(16, size);
  if (opcode.kind == 's' && size < held && bits >> (size - 1) != 0)
    bits |= (U{1} << held) - (U{1} << size);
  return bits;
}

void check_load(const MemoryOpcode& opcode) {
  std::string body;
  if (is_in_copy(opcode))
    body +=
        copy_piece("ld.global.u64", "%d1", "st." + opcode.space + ".u64", piece_in(opcode.space));
  else
    body += "mov.u64 %d3, %d1;\n";
  const std::string from = opcode.space == "param" ? "bytes" : piece_in(opcode.space);
  body += fmt::format("{} {}, [{}];\n", opcode.name, registers(opcode), from);
  for (int i = 0; i < opcode.count; ++i) {
    const char letter = opcode.letter();
    const std::string source = fmt::format("%{}{}", letter, 4 + i);
    body += letter == 'h'   ? fmt::format("cvt.u64.u16 %d9, {};", source)
            : letter == 'r' ? fmt::format("cvt.u64.u32 %d9, {};", source)
            : letter == 'f' ? fmt::format("mov.b32 %r9, {}; cvt.u64.u32 %d9, %r9;", source)
                            : fmt::format("mov.b64 %d9, {};", source);
    body += fmt::format("st.global.u64 [%d2+{}], %d9;\n", 8 * i);
  }
  const Bytes in = random_bytes(kMemoryThreads * kPieceBytes), before(in.size(), 0xEE);
  const Bytes parameter = random_bytes(kPieceBytes);
  const Bytes out = result_of(body, in, before, std::span<const uint8_t, kPieceBytes>(parameter));
  for (size_t thread = 0; thread < kMemoryThreads; ++thread) {
    const uint8_t* const piece =
        opcode.space == "param" ? parameter.data() : &in[thread * kPieceBytes];
    for (int i = 0; i < opcode.count; ++i) {
      U got = 0;
      std::memcpy(&got, &out[thread * kPieceBytes + 8 * static_cast<size_t>(i)], 8);
      REQUIRE(got == extended(opcode, piece + i * opcode.bytes));
    }
  }
}

void check_store(const MemoryOpcode& opcode) {
  std::string body;
  for (int i = 0; i < opcode.count; ++i) {
    const char letter = opcode.letter();
    const std::string target = fmt::format("%{}{}", letter, 4 + i);
    body += fmt::format("ld.global.u64 %d9, [%d1+{}]; cvt.u32.u64 %r9, %d9;\n", 8 * i);
    body += letter == 'h'   ? fmt::format("cvt.u16.u64 {}, %d9;\n", target)
            : letter == 'r' ? fmt::format("mov.u32 {}, %r9;\n", target)
            : letter == 'f' ? fmt::format("mov.b32 {}, %r9;\n", target)
                            : fmt::format("mov.b64 {}, %d9;\n", target);
  }
  const std::string piece = piece_in(opcode.space);
  if (is_in_copy(opcode))
    body += copy_piece("ld.global.u64", "%d2", "st." + opcode.space + ".u64", piece);
  body += fmt::format("mov.u64 %d3, %d2;\n{} [{}], {};\n", opcode.name, piece, registers(opcode));
  if (is_in_copy(opcode))
    body += copy_piece("ld." + opcode.space + ".u64", piece, "st.global.u64", "%d2");
  const Bytes in = random_bytes(kMemoryThreads * kPieceBytes), before(in.size(), 0xEE);
  const Bytes parameter(kPieceBytes);
  const Bytes out = result_of(body, in, before, std::span<const uint8_t, kPieceBytes>(parameter));
  Bytes expected = before;
  for (size_t thread = 0; thread < kMemoryThreads; ++thread)
    for (int i = 0; i < opcode.count; ++i)
      std::memcpy(&expected[thread * kPieceBytes + static_cast<size_t>(i * opcode.bytes)],
                  &in[thread * kPieceBytes + 8 * static_cast<size_t>(i)],
                  static_cast<size_t>(opcode.bytes));
  REQUIRE(out == expected);
}

// Runs one warp. `in`: four words per lane, in %r4 to %r7. Returns %r8 of each lane.
std::vector<uint32_t> of_warp(const std::string& body, const std::vector<uint32_t>& in) {
  TestDevice device(
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry run(.param .u64 in, .param .u64 out) {\n"
      ".reg .pred %p<5>; .reg .b32 %r<12>; .reg .b64 %d<5>;\n"
      "ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x;\n"
      "mad.wide.u32 %d1, %r1, 16, %d1; mad.wide.u32 %d2, %r1, 4, %d2;\n"
      "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d1];\nsetp.ne.s32 %p1, %r6, 0;\n" +
      body + "\nst.global.u32 [%d2], %r8;\nret;\n}\n");
  const uint64_t input = device.put(in), output = device.make<uint32_t>(32);
  REQUIRE(device.fault("run", grid_of(1, 32), input, output) == "");
  return device.get<uint32_t>(output, 32);
}

std::vector<uint32_t> random_words(size_t count) {
  std::mt19937 random(7);
  std::vector<uint32_t> words(count);
  for (uint32_t& each : words) each = static_cast<uint32_t>(random());
  return words;
}

// Returns the lane that shfl reads (PTX ISA, "shfl.sync").
uint32_t source_lane(const std::string& mode, uint32_t lane, uint32_t b, uint32_t c) {
  const uint32_t segment = c >> 8 & 31, clamp = c & 31, by = b & 31;
  const uint32_t last = (lane & segment) | (clamp & ~segment), first = lane & segment;
  if (mode == "up") return lane >= by && lane - by >= last ? lane - by : lane;
  const uint32_t from = mode == "down"   ? lane + by
                        : mode == "bfly" ? lane ^ by
                                         : first | (by & ~segment & 31);
  return from <= last ? from : lane;
}

}  // namespace

std::optional<MemoryOpcode> memory_opcode(const std::string& name) {
  static const std::regex pattern(
      "(ld|st)(\\.(global|shared|local|param))?(\\.nc)?(\\.v([24]))?\\.([busf])(8|16|32|64)");
  std::smatch parts;
  if (!std::regex_match(name, parts, pattern)) return std::nullopt;
  return MemoryOpcode{.name = name,
                      .is_load = parts[1] == "ld",
                      .space = parts[3],
                      .count = parts[6].matched ? std::stoi(parts[6]) : 1,
                      .kind = parts[7].str()[0],
                      .bytes = std::stoi(parts[8]) / 8};
}

void check(const MemoryOpcode& opcode) {
  INFO(opcode.name);
  if (opcode.is_load)
    check_load(opcode);
  else
    check_store(opcode);
}

TEST_CASE("Opcodes: loads and stores") {
  for (const std::string space : {"", ".global", ".shared", ".local"})
    for (const std::string vector : {"", ".v2", ".v4"})
      for (const std::string type : {"u8", "s8", "u16", "s16", "b32", "s32", "f32", "u64", "f64"}) {
        if (vector == ".v4" && type.ends_with("64")) continue;  // 16 bytes at most.
        for (const std::string name : {"ld", "st"})
          check(*memory_opcode(name + space + vector + "." + type));
        if (space == ".global") check(*memory_opcode("ld.global.nc" + vector + "." + type));
        if (space == ".global") check(*memory_opcode("ld.param" + vector + "." + type));
      }
}

TEST_CASE("Opcodes: addresses") {
  // The generic address of shared memory reaches the same bytes; one of global memory is the same.
  const Bytes in = random_bytes(kMemoryThreads * kPieceBytes);
  const Bytes parameter(kPieceBytes);
  const auto require_copy = [&](const std::string& body) {
    REQUIRE(result_of(body, in, Bytes(in.size()),
                      std::span<const uint8_t, kPieceBytes>(parameter)) == in);
  };
  require_copy(copy_piece("ld.global.u64", "%d1", "st.shared.u64", "%r2") +
               "cvt.u64.u32 %d4, %r2; cvta.shared.u64 %d5, %d4; cvta.to.global.u64 %d6, %d2;\n" +
               copy_piece("ld.u64", "%d5", "st.global.u64", "%d6"));
  // Writes local memory, and reads it at its generic address.
  const std::string to_local = copy_piece("ld.global.u64", "%d1", "st.local.u64", "%d10") +
                               "cvta.local.u64 %d5, %d10; cvta.to.local.u64 %d6, %d5;\n";
  require_copy(to_local + copy_piece("ld.u64", "%d5", "st.global.u64", "%d2"));
  require_copy(to_local + copy_piece("ld.local.u64", "%d6", "st.global.u64", "%d2"));
}

TEST_CASE("Opcodes: shuffles and votes") {
  const std::vector<uint32_t> in = random_words(4 * 32);
  for (const std::string mode : {"up", "down", "bfly", "idx"})
    for (const uint32_t c : {0x1fu, 0x1c1fu, 0x1807u, 0x0u, 0x1003u}) {
      CAPTURE(mode, c);
      const std::vector<uint32_t> out =
          of_warp(fmt::format("shfl.sync.{}.b32 %r8, %r4, %r5, {}, 0xffffffff;", mode, c), in);
      for (uint32_t lane = 0; lane < 32; ++lane)
        REQUIRE(out[lane] == in[4 * source_lane(mode, lane, in[4 * lane + 1], c)]);
    }
  std::vector<uint32_t> votes = in;
  uint32_t ballot = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    votes[4 * lane + 2] &= 1;
    ballot |= votes[4 * lane + 2] << lane;
  }
  REQUIRE(of_warp("vote.sync.ballot.b32 %r8, %p1, 0xffffffff;", votes) ==
          std::vector<uint32_t>(32, ballot));
}

TEST_CASE("Opcodes: a barrier of a warp orders its lanes") {
  const std::vector<uint32_t> in = random_words(4 * 32);
  const std::vector<uint32_t> out = of_warp(
      ".shared .align 4 .b8 words[128];\nmov.u32 %r2, words; shl.b32 %r3, %r1, 2;\n"
      "add.s32 %r2, %r2, %r3; st.shared.u32 [%r2], %r4; bar.warp.sync 0xffffffff;\n"
      "xor.b32 %r3, %r1, 5; mov.u32 %r2, words; shl.b32 %r3, %r3, 2; add.s32 %r2, %r2, %r3;\n"
      "ld.shared.u32 %r8, [%r2];",
      in);
  for (size_t lane = 0; lane < 32; ++lane) REQUIRE(out[lane] == in[4 * (lane ^ 5)]);
}

TEST_CASE("Opcodes: matrices of eight rows from shared memory") {
  // Each lane copies a row of eight bf16 to shared memory: 16 bytes, rows of four matrices.
  const std::vector<uint32_t> in = random_words(4 * 32);
  const auto element = [&](size_t matrix, size_t row, size_t column) {
    return in[4 * (8 * matrix + row) + column / 2] >> (16 * (column % 2)) & 0xffff;
  };
  for (const bool transposed : {false, true})
    for (int number = 0; number < 4; ++number) {
      CAPTURE(transposed, number);
      const std::vector<uint32_t> out = of_warp(
          fmt::format(".shared .align 16 .b8 rows[512];\nmov.u32 %r2, rows;\n"
                      "mad.lo.s32 %r2, %r1, 16, %r2; cp.async.cg.shared.global [%r2], [%d1], 16;\n"
                      "cp.async.commit_group; cp.async.wait_group 0; bar.warp.sync 0xffffffff;\n"
                      "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r2];\n"
                      "mov.u32 %r8, %r{};",
                      transposed ? ".trans" : "", 4 + number),
          in);
      for (size_t lane = 0; lane < 32; ++lane) {
        const auto matrix = static_cast<size_t>(number);
        const size_t row = lane / 4, column = 2 * (lane % 4);
        const uint32_t low =
            transposed ? element(matrix, column, row) : element(matrix, row, column);
        const uint32_t high =
            transposed ? element(matrix, column + 1, row) : element(matrix, row, column + 1);
        REQUIRE(out[lane] == (low | high << 16));
      }
    }
}

TEST_CASE("Opcodes: a product of bf16 matrices, 16 x 16 by 16 x 8") {
  // Small integers, whose products and sums are exact. Fragments have the layout of the PTX ISA.
  std::mt19937 random(3);
  const auto small = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
  std::array<std::array<float, 16>, 16> a;
  std::array<std::array<float, 8>, 16> b, c;
  for (auto& row : a) std::ranges::generate(row, small);
  for (auto& row : b) std::ranges::generate(row, small);
  for (auto& row : c) std::ranges::generate(row, small);
  const auto pair = [](float low, float high) {
    return std::bit_cast<uint32_t>(low) >> 16 | (std::bit_cast<uint32_t>(high) & 0xffff0000);
  };
  std::vector<uint32_t> words;
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t group = lane / 4, at = 2 * (lane % 4);
    for (const size_t column : {at, at + 8})
      for (const size_t row : {group, group + 8})
        words.push_back(pair(a[row][column], a[row][column + 1]));
    for (const size_t row : {at, at + 8}) words.push_back(pair(b[row][group], b[row + 1][group]));
    for (const size_t row : {group, group + 8})
      for (const size_t column : {at, at + 1})
        words.push_back(std::bit_cast<uint32_t>(c[row][column]));
  }
  constexpr size_t kWords = 10;
  TestDevice device(
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry run(.param .u64 in, .param .u64 out) {\n"
      ".reg .b32 %r<12>; .reg .f32 %f<9>; .reg .b64 %d<5>;\n"
      "ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x;\n"
      "mad.wide.u32 %d1, %r1, 40, %d1; mad.wide.u32 %d2, %r1, 16, %d2;\n"
      "ld.global.u32 %r2, [%d1]; ld.global.u32 %r3, [%d1+4]; ld.global.u32 %r4, [%d1+8];\n"
      "ld.global.u32 %r5, [%d1+12]; ld.global.u32 %r6, [%d1+16]; ld.global.u32 %r7, [%d1+20];\n"
      "ld.global.f32 %f1, [%d1+24]; ld.global.f32 %f2, [%d1+28]; ld.global.f32 %f3, [%d1+32];\n"
      "ld.global.f32 %f4, [%d1+36];\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5, %f6, %f7, %f8},\n"
      "{%r2, %r3, %r4, %r5}, {%r6, %r7}, {%f1, %f2, %f3, %f4};\n"
      "st.global.v4.f32 [%d2], {%f5, %f6, %f7, %f8};\nret;\n}\n");
  REQUIRE(words.size() == 32 * kWords);
  const uint64_t in = device.put(words), out = device.make<float>(4 * 32);
  REQUIRE(device.fault("run", grid_of(1, 32), in, out) == "");
  const auto results = device.get<float>(out, 4 * 32);
  for (size_t lane = 0; lane < 32; ++lane) {
    size_t number = 4 * lane;
    for (const size_t row : {lane / 4, lane / 4 + 8})
      for (const size_t column : {2 * (lane % 4), 2 * (lane % 4) + 1}) {
        float sum = c[row][column];
        for (size_t k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
        REQUIRE(results[number++] == sum);
      }
  }
}

}  // namespace tessera::virtual_gpu
