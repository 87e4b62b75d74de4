// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/new_project.h"

#include <cctype>
#include <set>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/environment.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "plugins/loader.h"
#include "plugins/runexp/commands.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

constexpr std::string_view kName = "my_project";  // The name in the templates.
constexpr std::string_view kPackage = "/where/tessera/is";
constexpr std::string_view kLicences[] = {"// SPDX-License-Identifier: Apache-2.0\n",
                                          "# SPDX-License-Identifier: Apache-2.0\n"};

// Names that a namespace cannot have: C++ keywords, and names already in use.
const std::set<std::string, std::less<>> kTaken = {
    "alignas",   "alignof",   "and",       "asm",      "auto",     "bitand",   "bitor",    "bool",
    "break",     "case",      "catch",     "char",     "class",    "compl",    "concept",  "const",
    "consteval", "constexpr", "constinit", "continue", "decltype", "default",  "delete",   "do",
    "double",    "else",      "enum",      "explicit", "export",   "extern",   "false",    "float",
    "for",       "friend",    "goto",      "if",       "inline",   "int",      "long",     "main",
    "mutable",   "namespace", "new",       "noexcept", "not",      "nullptr",  "operator", "or",
    "private",   "protected", "public",    "register", "requires", "return",   "short",    "signed",
    "sizeof",    "static",    "std",       "struct",   "switch",   "template", "tessera",  "test",
    "this",      "throw",     "true",      "try",      "typedef",  "typeid",   "typename", "union",
    "unsigned",  "using",     "virtual",   "void",     "volatile", "while",    "xor"};

// A similar name that a project may have.
std::string legal_name(const std::string& name) {
  std::string legal;
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 && byte < 128) {
      legal += static_cast<char>(std::tolower(byte));
    } else if (!legal.empty() && legal.back() != '_') {
      legal += '_';
    }
  }
  while (legal.ends_with('_')) legal.pop_back();
  if (legal.empty() || std::isdigit(static_cast<unsigned char>(legal.front())) != 0 ||
      kTaken.contains(legal))
    legal = legal.empty() ? std::string(kName) : "my_" + legal;
  return legal;
}

void check_name(const std::string& name) {
  if (legal_name(name) != name)
    fail(
        "new {}: a project's name is also a C++ namespace: use lowercase letters, digits and _, "
        "but not a C++ keyword; did you mean {}?",
        name, legal_name(name));
  const filesystem::path plugin = own_plugins("experiments") / (name + ".so");
  if (filesystem::exists(plugin))
    fail(
        "new {}: Tessera has a family of experiments with that name; choose another, such as my_{}",
        name, name);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The folder of this Tessera for find_package, in a build tree or installed.
filesystem::path package_folder() {
  const filesystem::path folder =
      own_plugins("experiments").parent_path().parent_path() / "cmake" / "Tessera";
  if (!filesystem::exists(folder / "TesseraConfig.cmake"))
    fail("new: {} has no TesseraConfig.cmake to build a project with; install Tessera again",
         folder.string());
  return folder;
}

struct New {
  static constexpr CommandInfo kInfo{.flag = "new_project",
                                     .summary = "create a plugin project of your own"};
  std::string new_project;
  FIELDS(About(new_project, "", {.unit = "NAME"}))

  CommandResult run(const CommandContext& context) const {
    const filesystem::path folder = user_path(new_project, "new");
    if (context.processes.is_first())
      context.out << write_new_project(folder, filesystem::canonical("/proc/self/exe"));
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> new_command() { return command_of<New>(); }

std::string write_new_project(const filesystem::path& folder, const filesystem::path& program) {
  const filesystem::path plain = folder.has_filename() ? folder : folder.parent_path();
  const std::string name = plain.filename().string();
  check_name(name);
  const std::string package = json_quoted(package_folder().string());
  std::error_code error;
  if (filesystem::exists(filesystem::symlink_status(plain, error)))
    fail("new {}: it already exists; choose another name or remove it", plain.string());
  filesystem::create_directories(plain, error);
  if (error) fail("new {}: cannot create the folder: {}", plain.string(), error.message());
  for (const auto& [file, contents] : new_project_files()) {
    std::string text(contents);
    for (const std::string_view licence : kLicences)
      if (text.starts_with(licence)) text.erase(0, licence.size());
    replace_all(text, kName, name);
    replace_all(text, fmt::format("\"{}\"", kPackage), package);
    if (file == "README.md")  // Its commands run as they are.
      replace_all(text, "\nrunexp ", fmt::format("\n{} ", shell_quoted(program.string())));
    write_file_atomically(plain / file, text);
  }
  return fmt::format(R"(Created {0}: an experiment, a layer with its test, and an input. Next:

  cd {0}
  cmake --preset release
  cmake --build build
  ctest --test-dir build
  {1} --plugin_path=build/lib/tessera/experiments --exp={2}.Sorter
)",
                     shell_quoted(plain.string()), shell_quoted(program.string()), name);
}

}  // namespace tessera
