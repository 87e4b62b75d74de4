// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/parser.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::virtual_gpu {
namespace {

constexpr int kMaxCalls = 16;  // Nesting depth; it ends the copying of recursive functions.

}  // namespace

Declaration parse_declaration(std::string_view text) {
  Declaration declaration;
  if (const size_t equal = text.find('='); equal != text.npos) {
    declaration.initial = trim(text.substr(equal + 1));
    text = text.substr(0, equal);
  }
  bool pointer = false;
  uint64_t align = 0;
  const auto parts = words(text);
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k] == ".ptr") pointer = true;  // The rest describes the memory that it points to.
    if (parts[k] == ".align" && ++k < parts.size() && !pointer) align = parse_number(parts[k]);
    if (parts[k][0] == '.' && declaration.type == Type::kNone)
      declaration.type = Opcode("x" + std::string(parts[k])).type();
    declaration.name = parts[k];
  }
  if (size_t bracket = declaration.name.find('['); bracket != text.npos) {
    std::string_view sizes = declaration.name.substr(bracket);
    declaration.name = declaration.name.substr(0, bracket);
    for (size_t end; (end = sizes.find(']')) != sizes.npos; sizes.remove_prefix(end + 1))
      declaration.count *= end == 1 ? 0 : parse_number(sizes.substr(1, end - 1));
  }
  declaration.align = std::max<uint64_t>(align, static_cast<uint64_t>(bytes_of(declaration.type)));
  return declaration;
}

std::vector<std::byte> parse_initial(const Declaration& declaration) {
  std::vector<std::byte> bytes;
  std::string_view values = declaration.initial;
  if (values.starts_with('{')) values = values.substr(1, values.size() - 2);
  const auto size = static_cast<size_t>(bytes_of(declaration.type));
  for (const std::string_view value : split(values, ',')) {
    const uint64_t bits = parse_number(value);
    bytes.resize(bytes.size() + size);
    std::memcpy(bytes.data() + bytes.size() - size, &bits, size);
  }
  return bytes;
}

Function parse_header(std::string_view header, size_t body) {
  Function function;
  function.body = body;
  const bool kernel = header.find(".entry") != header.npos;
  header = trim(header.substr(kernel ? header.find(".entry") + 6 : header.find(".func") + 5));
  if (!kernel && header.starts_with('(')) {
    function.results = header.substr(1, header.find(')') - 1);
    header = trim(header.substr(header.find(')') + 1));
  }
  const size_t open = header.find('(');
  function.name = trim(header.substr(0, std::min(open, header.find_first_of(" \t\r\n"))));
  if (open != header.npos) {
    function.parameters = header.substr(open + 1, header.find(')', open) - open - 1);
  }
  return function;
}

KernelParser::KernelParser(std::string_view text, const Scope& globals,
                           const std::map<std::string, Function, std::less<>>& functions)
    : text_(text), functions_(functions), scopes_{globals} {
  kernel_.locations.emplace_back();
}

int64_t KernelParser::allocate(int& used, uint64_t bytes, uint64_t align) const {
  const auto a = static_cast<int>(std::max<uint64_t>(align, 1));
  const int begin = (used + a - 1) / a * a;
  used = begin + static_cast<int>(bytes);
  return begin;
}

Kernel KernelParser::parse(const Function& kernel) {
  kernel_.info.name = kernel.name;
  scopes_.emplace_back().is_function = true;
  for (const std::string_view parameter : split(kernel.parameters, ',')) {
    const Declaration d = parse_declaration(parameter);
    const int64_t offset = allocate(kernel_.parameter_bytes, d.bytes(), d.align);
    kernel_.info.parameters.emplace_back(static_cast<int>(offset), static_cast<int>(d.bytes()));
    scopes_.back().symbols[std::string(d.name)] = {Symbol::kParameter, offset};
  }
  parse_body(kernel.body);
  kernel_.texts.emplace_back("end of the kernel");
  text_number_ = static_cast<int>(kernel_.texts.size()) - 1;
  Instruction end;
  end.flow = Flow::kExit;
  emit(end);
  close_scope();
  kernel_.info.registers = std::min(kernel_.rows, 255);
  return std::move(kernel_);
}

void KernelParser::parse_body(size_t position) {
  Scanner scanner(text_, position);
  for (int depth = 0;;) {
    const Statement s = scanner.next();
    switch (s.kind) {
      case Statement::kEnd:
        throw Fault{"PTX: a function without end"};
      case Statement::kHeader:
        throw Fault{"PTX: a function inside of another"};
      case Statement::kOpen:
        ++depth;
        scopes_.emplace_back();
        break;
      case Statement::kClose:
        if (depth-- == 0) return;
        close_scope();
        break;
      case Statement::kLabel:
        scopes_.back().labels[std::string(s.text)] = static_cast<int>(kernel_.code.size());
        if (const Statement table = Scanner(text_, scanner.position()).next();
            table.text.starts_with(".branchtargets")) {
          scanner.next();
          const auto index = static_cast<int>(kernel_.tables.size());
          scopes_.back().symbols[std::string(s.text)] = {Symbol::kTable, index};
          const auto labels = split(table.text.substr(14), ',');
          kernel_.tables.emplace_back(labels.size());
          for (size_t k = 0; k < labels.size(); ++k)
            scopes_.back().jumps.push_back(
                {std::string(labels[k]), -1, index, static_cast<int>(k)});
        }
        break;
      case Statement::kDirective:
        set_location(s.text);
        break;
      case Statement::kStatement:
        try {
          statement(s.text);
        } catch (const Fault& f) {
          throw Fault{fmt::format("{}, at `{}` of kernel {}", f.text, s.text, kernel_.info.name)};
        }
        break;
    }
  }
}

void KernelParser::close_scope() {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (Jump& jump : scope.jumps) {
    const auto label = scope.labels.find(jump.label);
    if (label == scope.labels.end()) {
      if (scope.is_function)
        throw Fault{fmt::format("PTX: kernel {} has no label {}", kernel_.info.name, jump.label)};
      scopes_.back().jumps.push_back(std::move(jump));
    } else if (jump.table >= 0) {
      kernel_.tables[static_cast<size_t>(jump.table)][static_cast<size_t>(jump.entry)] =
          label->second;
    } else {
      kernel_.code[static_cast<size_t>(jump.instruction)].target = label->second;
    }
  }
}

// ".loc 1 26 3, function_name $L__info_string0, inlined_at 1 59 3". Line 0: made by the compiler.
void KernelParser::set_location(std::string_view directive) {
  if (!directive.starts_with(".loc")) return;
  const auto parts = split(directive, ',');
  const auto numbers = words(parts[0]);
  Location location{static_cast<int>(parse_number(numbers[1])),
                    static_cast<int>(parse_number(numbers[2]))};
  if (location.line == 0) return;
  for (const std::string_view part : parts) {
    if (!part.starts_with("inlined_at")) continue;
    const auto outer = words(part);
    location.outer_file = static_cast<int>(parse_number(outer[1]));
    location.outer_line = static_cast<int>(parse_number(outer[2]));
  }
  kernel_.locations.push_back(location);
}

void KernelParser::declare_registers(std::string_view text) {
  const size_t type = text.find('.', 1);
  const size_t names = text.find_first_of(" \t", type);
  for (const std::string_view name : split(text.substr(names), ',')) {
    const size_t angle = name.find('<');
    const auto count = angle == name.npos ? 1
                                          : static_cast<int64_t>(parse_number(name.substr(
                                                angle + 1, name.find('>') - angle - 1)));
    scopes_.back().symbols[std::string(name.substr(0, angle == name.npos ? angle : angle + 1))] = {
        Symbol::kRegister, kernel_.rows, count};
    kernel_.rows += static_cast<int>(count);
  }
}

void KernelParser::declare(std::string_view text) {
  if (text.starts_with(".reg")) return declare_registers(text);
  if (text.starts_with(".pragma")) return;
  const Declaration d = parse_declaration(text);
  Symbol& symbol = scopes_.back().symbols[std::string(d.name)];
  if (text.find(".shared") != text.npos) {
    if (d.count == 0) {
      symbol = {Symbol::kDynamicShared, 0};
    } else {
      symbol = {Symbol::kShared, allocate(kernel_.info.static_shared_bytes, d.bytes(), d.align)};
    }
  } else if (text.starts_with(".local") || text.starts_with(".param")) {
    symbol = {Symbol::kLocal, allocate(kernel_.local_bytes, d.bytes(), d.align)};
  } else {
    throw Fault{fmt::format("PTX: the virtual GPU does not know the directive '{}'", text)};
  }
}

void KernelParser::emit(Instruction instruction) {
  instruction.location = static_cast<int>(kernel_.locations.size()) - 1;
  instruction.text = text_number_;
  kernel_.code.push_back(instruction);
}

void KernelParser::jump(Instruction instruction, std::string_view label) {
  instruction.flow = Flow::kBranch;
  scopes_.back().jumps.push_back({std::string(label), static_cast<int>(kernel_.code.size())});
  emit(instruction);
}

void KernelParser::statement(std::string_view text) {
  if (text.empty()) return;
  if (text[0] == '.') return declare(text);
  text_number_ = static_cast<int>(kernel_.texts.size());
  kernel_.texts.push_back(text);
  Instruction guard;
  if (text[0] == '@') {
    guard.negated = text[1] == '!';
    const size_t end = text.find_first_of(" \t\r\n");
    guard.guard =
        operand(trim(text.substr(guard.negated ? 2 : 1, end - (guard.negated ? 2 : 1))), nullptr);
    text = trim(text.substr(end));
  }
  const size_t end = std::min(text.find_first_of(" \t\r\n"), text.size());
  const Opcode op(text.substr(0, end));
  const std::string_view rest = trim(text.substr(end));
  if (op.name() == "bra") return jump(guard, rest);
  if (op.name() == "ret" && calls_ > 0) return jump(guard, "return");
  const bool asserts = op.name() == "call" && rest.find("__assertfail") != rest.npos;
  if (op.name() == "call" && !asserts) return call(rest, guard.guard, guard.negated);
  Instruction i = asserts ? decode(Opcode("trap"), {}) : instruction(op, rest);
  i.guard = guard.guard;
  i.negated = guard.negated;
  emit(i);
}

Instruction KernelParser::instruction(const Opcode& op, std::string_view operands) {
  Instruction i;
  if (op.name() == "brx") {
    const auto parts = split(operands, ',');
    const Symbol* const table = find(parts[1]);
    if (!table) throw Fault{fmt::format("PTX: no branch targets {}", parts[1])};
    i.flow = Flow::kTable;
    i.o[0] = operand(parts[0], nullptr);
    i.target = static_cast<int32_t>(table->value);
  } else if (op.name() == "ret" || op.name() == "exit") {
    i.flow = Flow::kExit;
  } else {
    std::vector<Argument> arguments;
    const bool clock =
        operands.find("%clock") != operands.npos || operands.find("%globaltimer") != operands.npos;
    for (const std::string_view part : split(operands, ','))
      if (!clock || arguments.empty()) arguments.push_back(argument(part));
    i = decode(clock ? Opcode("clock") : op, arguments);
  }
  return i;
}

// Inlines the function's body: its parameters are aliases of the caller's, and `ret` is a jump.
void KernelParser::call(std::string_view operands, Operand guard, bool negated) {
  std::vector<std::string_view> results, arguments;
  auto parts = split(operands, ',');
  const auto inside = [](std::string_view list) {
    return split(list.substr(1, list.size() - 2), ',');
  };
  if (parts[0].starts_with('(')) {
    results = inside(parts[0]);
    parts.erase(parts.begin());
  }
  if (parts.size() > 1) arguments = inside(parts[1]);
  const auto function = functions_.find(parts[0]);
  if (function == functions_.end() || calls_ == kMaxCalls)
    throw Fault{fmt::format("PTX: call of {}: {}", parts[0],
                            calls_ ? "it calls itself" : "the module does not define it")};
  Scope scope;
  scope.is_function = true;
  const auto bind = [&](std::string_view formals, const std::vector<std::string_view>& actuals) {
    const auto names = split(formals, ',');
    for (size_t k = 0; k < names.size() && k < actuals.size(); ++k)
      if (const Symbol* const actual = find(actuals[k]))
        scope.symbols[std::string(parse_declaration(names[k]).name)] = *actual;
  };
  bind(function->second.results, results);
  bind(function->second.parameters, arguments);
  scopes_.push_back(std::move(scope));
  if (guard != kNoOperand) {
    Instruction skip;
    skip.guard = guard;
    skip.negated = !negated;
    jump(skip, "return");
  }
  ++calls_;
  parse_body(function->second.body);
  --calls_;
  scopes_.back().labels["return"] = static_cast<int>(kernel_.code.size());
  close_scope();
}

const Symbol* KernelParser::find(std::string_view name) const {
  for (size_t k = scopes_.size(); k-- > 0;)
    if (const auto found = scopes_[k].symbols.find(name); found != scopes_[k].symbols.end())
      return &found->second;
  return nullptr;
}

Operand KernelParser::constant(uint64_t value) {
  const auto [found, fresh] =
      constants_.try_emplace(value, ~static_cast<Operand>(kernel_.constants.size()));
  if (fresh) kernel_.constants.push_back(value);
  return found->second;
}

Operand KernelParser::fixup(int variable) {
  kernel_.fixups.push_back({static_cast<int>(kernel_.constants.size()), variable});
  kernel_.constants.push_back(0);
  return ~static_cast<Operand>(kernel_.constants.size() - 1);
}

Operand KernelParser::special(std::string_view name) {
  const auto* const found = std::ranges::find(kSpecialNames, name);
  if (found == std::end(kSpecialNames)) throw Fault{fmt::format("PTX: unknown register {}", name)};
  const auto index = static_cast<int>(found - std::begin(kSpecialNames));
  const auto [special, fresh] = specials_.try_emplace(index, kernel_.rows);
  if (fresh) kernel_.specials.emplace_back(index, kernel_.rows++);
  return special->second;
}

Operand KernelParser::operand(std::string_view name, Space* space) {
  if (name == "_") return kernel_.rows++;
  if (name == "WARP_SZ") return constant(32);
  if (const Symbol* const symbol = find(name)) {
    if (symbol->kind == Symbol::kRegister) return static_cast<Operand>(symbol->value);
    if (symbol->kind == Symbol::kDynamicShared) return fixup(-1);
    if (symbol->kind == Symbol::kVariable) return fixup(static_cast<int>(symbol->value));
    if (symbol->kind == Symbol::kModuleShared) {
      const int64_t begin =
          allocate(kernel_.info.static_shared_bytes, static_cast<uint64_t>(symbol->count),
                   static_cast<uint64_t>(symbol->align));
      scopes_[1].symbols[std::string(name)] = {Symbol::kShared, begin};
      return constant(static_cast<uint64_t>(begin));
    }
    if (symbol->kind == Symbol::kLocal && space) *space = Space::kLocal;
    return constant(static_cast<uint64_t>(symbol->value));
  }
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits > 0 && digits < name.size()) {
    const Symbol* const range = find(std::string(name.substr(0, digits)) + "<");
    const auto number = range ? static_cast<int64_t>(parse_number(name.substr(digits))) : 0;
    if (range && number < range->count) return static_cast<Operand>(range->value + number);
  }
  if (name.starts_with('%')) return special(name);
  return constant(parse_number(name));
}

Argument KernelParser::argument(std::string_view text) {
  Argument argument;
  if (text[0] == '{') {
    for (const std::string_view part : split(text.substr(1, text.size() - 2), ','))
      argument.parts.push_back(operand(part, nullptr));
    return argument;
  }
  if (text[0] == '[') {
    argument.is_address = true;
    text = trim(text.substr(1, text.size() - 2));
  }
  if (text[0] == '!') {
    argument.negated = true;
    text = trim(text.substr(1));
  }
  const size_t plus = text.find('+');
  if (plus != text.npos) {
    argument.offset = static_cast<int64_t>(parse_number(trim(text.substr(plus + 1))));
    text = trim(text.substr(0, plus));
  }
  for (const std::string_view part : split(text, '|'))
    argument.parts.push_back(operand(part, &argument.space));
  if (plus != std::string_view::npos && !argument.is_address) {  // mov of "name+8".
    const Operand base = argument.parts[0];
    auto& fixups = kernel_.fixups;
    if (!fixups.empty() && fixups.back().constant == ~base) {
      fixups.back().offset = argument.offset;
    } else {
      argument.parts[0] = constant(kernel_.constants[static_cast<size_t>(~base)] +
                                   static_cast<uint64_t>(argument.offset));
    }
  }
  return argument;
}

}  // namespace tessera::virtual_gpu
