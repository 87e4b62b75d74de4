// SPDX-License-Identifier: Apache-2.0
// Parses modules: the declarations outside of functions.
#include "tests/virtual_gpu/parse_ptx.h"

#include <algorithm>

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

// Adds the file of a directive: .file 1 "/folder/name"
void add_file(std::string_view directive, Module& module) {
  const size_t open = directive.find('"');
  const std::string_view name = directive.substr(open + 1, directive.rfind('"') - open - 1);
  module.files[static_cast<int>(parse_number(words(directive)[1]))] = name;
}

// The parts of a module as text.
struct Source {
  std::string text;
  Scope globals;
  std::map<std::string, Function, std::less<>> kernels, functions;
};

}  // namespace

const Kernel* Module::kernel(std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  if (const auto found = kernels_.find(name); found != kernels_.end()) return &found->second;
  if (std::ranges::find(kernel_names, name) == kernel_names.end()) return nullptr;
  return &kernels_.emplace(name, parse(name)).first->second;
}

std::shared_ptr<const Module> parse_ptx(std::string_view ptx, bool parses_all) {
  const auto source = std::make_shared<Source>();
  source->text = without_comments(ptx);
  auto module = std::make_shared<Module>();
  Scanner scanner(source->text);
  for (Statement s = scanner.next(); s.kind != Statement::kEnd; s = scanner.next()) {
    if (s.kind == Statement::kHeader) {
      scanner.next();
      const Function function = parse_header(s.text, scanner.position());
      scanner.skip_braces();
      const bool is_kernel = s.text.find(".entry") != s.text.npos;
      if (is_kernel) module->kernel_names.emplace_back(function.name);
      (is_kernel ? source->kernels : source->functions)[std::string(function.name)] = function;
    } else if (s.kind == Statement::kDirective) {
      if (s.text.starts_with(".file")) add_file(s.text, *module);
    } else if (s.text.find(".func") == s.text.npos && !s.text.starts_with(".pragma")) {
      declare_global(s.text, source->globals, *module);
    }
  }
  module->parse = [source](std::string_view name) {
    return KernelParser(source->text, source->globals, source->functions)
        .parse(source->kernels.find(name)->second);
  };
  if (parses_all)
    for (const std::string& name : module->kernel_names) module->kernel(name);
  return module;
}

}  // namespace tessera::virtual_gpu
