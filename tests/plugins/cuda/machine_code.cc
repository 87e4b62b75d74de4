// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/cuda/machine_code.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "tests/virtual_gpu/fatbin.h"

namespace tessera::cuda {
namespace {

using virtual_gpu::FatbinEntry;

template <typename T>
T read(std::string_view bytes, size_t at) {
  CHECK(at + sizeof(T) <= bytes.size(), "a truncated section of machine code");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct Section {
  std::string_view name, bytes;  // `bytes` is empty if not in the file.
  Elf64_Shdr header;
};

std::vector<Section> sections_of(std::string_view elf) {
  const auto file = read<Elf64_Ehdr>(elf, 0);
  std::vector<Section> sections;
  for (size_t i = 0; i < file.e_shnum; ++i) {
    const auto header = read<Elf64_Shdr>(elf, file.e_shoff + i * sizeof(Elf64_Shdr));
    sections.push_back({{}, {}, header});
    if (header.sh_type != SHT_NOBITS)
      sections.back().bytes = elf.substr(header.sh_offset, header.sh_size);
  }
  for (Section& section : sections)
    section.name = sections[file.e_shstrndx].bytes.data() + section.header.sh_name;
  return sections;
}

// Calls use(attribute, values) for the attributes of a section .nv.info that have values.
void for_each_attribute(std::string_view info,
                        const std::function<void(int attribute, std::string_view values)>& use) {
  constexpr int kHasValues = 4;
  struct Attribute {
    uint8_t format, name;
    uint16_t value;  // The value, or the size of the values.
  };
  for (size_t at = 0; at < info.size(); at += sizeof(Attribute)) {
    const auto attribute = read<Attribute>(info, at);
    if (attribute.format != kHasValues) continue;
    use(attribute.name, info.substr(at + sizeof(Attribute), attribute.value));
    at += attribute.value;
  }
}

// Counts instructions. An instruction has 16 bytes. The low 9 bits of its first word are the
// opcode; the next 3 are the kinds of operands.
void count(std::string_view code, MachineCode& counts) {
  for (size_t at = 0; at < code.size(); at += 16) {
    const auto low = read<uint64_t>(code, at), high = read<uint64_t>(code, at + 8);
    const bool is_wide = (high >> 9 & 7) == 6;  // For loads and stores: 128 bits.
    switch (low & 0x1ff) {
      case 0x181:  // LDG
        ++counts.loads, counts.wide_loads += is_wide;
        break;
      case 0x1ae:  // LDGSTS: cp.async.cg, always 16 bytes.
        ++counts.loads, ++counts.wide_loads;
        break;
      case 0x186:  // STG
        ++counts.stores, counts.wide_stores += is_wide;
        break;
      case 0x183:  // LDL
      case 0x187:  // STL
        ++counts.local;
        break;
      case 0x03c:  // HMMA
        ++counts.tensor;
        break;
      case 0x108:  // MUFU
        counts.exponentials += (high >> 10 & 15) == 2;
        counts.reciprocals += (high >> 10 & 15) == 4;
        break;
      case 0x105:  // F2I of 32 bits
      case 0x111:  // F2I of 64 bits
        ++counts.conversions;
        break;
      default:
        break;
    }
  }
}

void add_elf(std::string_view elf, int architecture, MachineCodes& codes) {
  const std::vector<Section> sections = sections_of(elf);
  std::map<uint32_t, MachineCode*> by_symbol;
  const auto after = [](std::string_view name, std::string_view prefix) {
    return name.starts_with(prefix) ? std::string(name.substr(prefix.size())) : std::string();
  };
  for (const Section& section : sections) {
    const std::string kernel = after(section.name, ".text.");
    if (kernel.empty()) continue;
    MachineCode& code = codes[kernel][architecture];
    // The low bits of sh_info are the kernel's number in the table of symbols.
    by_symbol[section.header.sh_info & 0xffffff] = &code;
    count(section.bytes, code);
  }
  for (const Section& section : sections) {
    const std::string shared = after(section.name, ".nv.shared."),
                      own = after(section.name, ".nv.info.");
    if (codes.contains(shared))
      codes[shared][architecture].shared_bytes = static_cast<int>(section.header.sh_size);
    if (!section.name.starts_with(".nv.info")) continue;
    for_each_attribute(section.bytes, [&](int attribute, std::string_view values) {
      constexpr int kMostThreads = 0x05, kStack = 0x12, kRegisters = 0x2f;
      if (attribute == kMostThreads && codes.contains(own)) {
        codes[own][architecture].threads =
            read<int>(values, 0) * read<int>(values, 4) * read<int>(values, 8);
      } else if (attribute == kStack || attribute == kRegisters) {
        const auto found = by_symbol.find(read<uint32_t>(values, 0));
        if (found == by_symbol.end()) return;
        (attribute == kStack ? found->second->stack_bytes : found->second->registers) =
            read<int>(values, 4);
      }
    });
  }
}

}  // namespace

void add_machine_code(const unsigned char* fatbin, MachineCodes& codes) {
  virtual_gpu::for_each_entry(fatbin, [&](const FatbinEntry& entry, std::string_view bytes) {
    if (entry.kind == FatbinEntry::kMachineCode)
      add_elf(bytes, static_cast<int>(entry.architecture), codes);
  });
}

std::string compiler_version(const unsigned char* fatbin) {
  constexpr std::string_view kBefore = "Cuda compilation tools, release ";
  std::string version = "unknown";
  virtual_gpu::for_each_entry(fatbin, [&](const FatbinEntry& entry, std::string_view bytes) {
    const size_t at = bytes.find(", V", bytes.find(kBefore));
    if (entry.kind == FatbinEntry::kMachineCode && at != std::string_view::npos)
      version = bytes.data() + at + 3;  // A zero-terminated string of a note.
  });
  return version.substr(0, version.find_first_not_of("0123456789."));
}

int resident_blocks(const MachineCode& code, int threads, int dynamic_shared_bytes) {
  constexpr int kWarps = 64, kBlocks = 32, kRegisters = 65536, kSharedBytes = 228 << 10;
  constexpr auto round_up = [](int x, int unit) { return (x + unit - 1) / unit * unit; };
  const int warps = round_up(threads, 32) / 32;
  // A warp gets registers in units of 256, and each of the 4 parts of a multiprocessor has a
  // quarter of them.
  const int warps_by_registers = kRegisters / 4 / round_up(code.registers * 32, 256) * 4;
  // Reserved shared memory per block; shared_bytes includes it if not 0.
  constexpr int kReserved = 1 << 10;
  const int shared = round_up(std::max(code.shared_bytes, kReserved) + dynamic_shared_bytes, 128);
  return std::min({kBlocks, kWarps / warps, warps_by_registers / warps, kSharedBytes / shared});
}

}  // namespace tessera::cuda
