// SPDX-License-Identifier: Apache-2.0
// Modules: what is declared outside of functions.
#include "tests/virtual_gpu/parse_ptx.h"

#include <fmt/format.h>

#include "tests/virtual_gpu/parser.h"

namespace tessera::virtual_gpu {
namespace {

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

std::shared_ptr<const Module> parse_ptx(std::string_view ptx) {
  const std::string text = without_comments(ptx);
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
