// SPDX-License-Identifier: Apache-2.0
// Modules: the PTX in a fatbin, and what is declared outside of functions.
#include "tests/virtual_gpu/parse_ptx.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tests/virtual_gpu/parser.h"

namespace tessera::virtual_gpu {
namespace {

// The container that nvcc --fatbin writes: a header, then entries with their own headers.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // Of all entries.
};
struct FatbinEntry {
  uint16_t kind;  // 1: PTX, 2: ELF.
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;
};
constexpr uint32_t kFatbinMagic = 0xba55ed50;

void declare_global(std::string_view text, Scope& globals, Module& module) {
  const Declaration d = parse_declaration(text);
  Symbol& symbol = globals.symbols[std::string(d.name)];
  if (text.find(".shared") != text.npos) {
    symbol = {d.count ? Symbol::kModuleShared : Symbol::kDynamicShared, 0,
              static_cast<int64_t>(d.bytes()), static_cast<int64_t>(d.align)};
  } else if (text.find(".global") != text.npos || text.find(".const") != text.npos) {
    symbol = {Symbol::kVariable, static_cast<int64_t>(module.variables.size())};
    module.variables.push_back({std::string(d.name), d.bytes(), parse_initial(d)});
  } else {
    throw Fault{fmt::format("PTX: the virtual GPU does not know the directive '{}'", text)};
  }
}

// .file 1 "/folder/name"
void add_file(std::string_view directive, Module& module) {
  const size_t open = directive.find('"');
  const std::string_view name = directive.substr(open + 1, directive.rfind('"') - open - 1);
  module.files[static_cast<int>(parse_number(words(directive)[1]))] = name;
}

}  // namespace

std::string_view ptx_of(std::string_view image) {
  FatbinHeader header;
  if (image.size() < sizeof header) return image;
  std::memcpy(&header, image.data(), sizeof header);
  if (header.magic != kFatbinMagic) return image;
  uint64_t at = header.header_bytes;
  const uint64_t end = std::min<uint64_t>(at + header.bytes, image.size());
  while (at + sizeof(FatbinEntry) <= end) {
    FatbinEntry entry;
    std::memcpy(&entry, image.data() + at, sizeof entry);
    const uint64_t begin = at + entry.header_bytes;
    if (entry.kind == 1) {
      if (entry.compressed_bytes || begin + entry.bytes > end)
        throw Fault{"the fatbin's PTX is compressed or cut off; compile with nvcc --no-compress"};
      const std::string_view text = image.substr(begin, entry.bytes);
      return text.substr(0, text.find('\0'));
    }
    at = begin + entry.bytes;
  }
  throw Fault{"the fatbin holds no PTX; compile with -gencode arch=compute_80,code=compute_80"};
}

std::shared_ptr<const Module> parse_ptx(std::string_view image) {
  const std::string text = without_comments(ptx_of(image));
  auto module = std::make_shared<Module>();
  Scope globals;
  std::vector<Function> kernels;
  std::map<std::string, Function, std::less<>> functions;
  Scanner scanner(text);
  for (Statement s = scanner.next(); s.kind != Statement::kEnd; s = scanner.next()) {
    if (s.kind == Statement::kHeader) {
      scanner.next();
      const Function function = parse_header(s.text, scanner.position());
      scanner.skip_braces();
      if (s.text.find(".entry") != s.text.npos) {
        kernels.push_back(function);
      } else {
        functions[std::string(function.name)] = function;
      }
    } else if (s.kind == Statement::kDirective) {
      if (s.text.starts_with(".file")) add_file(s.text, *module);
    } else if (s.text.find(".func") == s.text.npos && !s.text.starts_with(".pragma")) {
      declare_global(s.text, globals, *module);
    }
  }
  for (const Function& kernel : kernels)
    KernelParser(text, *module, globals, functions).parse(kernel);
  return module;
}

}  // namespace tessera::virtual_gpu
