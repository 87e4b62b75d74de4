// SPDX-License-Identifier: Apache-2.0
// Names in comments and documents must refer to existing files, sections and links, and an op's
// name is a string only where the op is defined.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "core/graph/op.h"
#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/source_tree.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

// Files of other projects and of users, which comments and documents may name.
const std::set<std::string> kElsewhere = {
    "/bits/stl_pair.h",           // libstdc++
    "cuda.h",                     // the CUDA toolkit
    "cudnn.h",                    // cuDNN
    "dev/data/data_common.py",    // llm.c
    "env.py",                     // clearml, which seqax imports
    "my_project/ffn.cc",          // made by `runexp new my_project`
    "experiments/mine/small.cc",  // an experiment of the user
};

// Folders of Pax.
const std::vector<std::string> kFoldersElsewhere = {"paxml/", "praxis/"};

bool is_elsewhere(const std::string& name) {
  return kElsewhere.contains(name) ||
         std::ranges::any_of(kFoldersElsewhere,
                             [&](const std::string& folder) { return name.starts_with(folder); });
}

const std::vector<std::string> kExtensions = {".h",     ".cc", ".cu", ".cuh",
                                              ".cmake", ".md", ".py", ".sh"};

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_./*<>-").find(c) != std::string_view::npos;
}

struct Token {
  std::string name;
  size_t position = 0;
};

// Whether text looks like the name of a file: "core/graph/op.h", "<family>.cc", "*_test.cc".
std::vector<Token> file_names(const std::string& text) {
  std::vector<Token> tokens;
  for (const std::string& extension : kExtensions)
    for (size_t at = 0; (at = text.find(extension, at)) != std::string::npos; ++at) {
      const size_t end = at + extension.size();
      const char after = end < text.size() ? text[end] : ' ';
      const bool goes_on = end + 1 < text.size() && after == '.' && is_name_char(text[end + 1]);
      if (std::isalnum(static_cast<unsigned char>(after)) != 0 || after == '_' || goes_on) continue;
      size_t begin = at;
      while (begin > 0 && is_name_char(text[begin - 1])) --begin;
      std::string name = text.substr(begin, end - begin);
      if (name.find('>') == std::string::npos) name = name.substr(name.rfind('<') + 1);
      if (name.size() > extension.size() && !name.starts_with("//"))
        tokens.push_back({name, begin});
    }
  return tokens;
}

// `*`, `<any>` and a leading '-' match any part of one name; "./" and "../" are ignored.
std::regex pattern_of(std::string name) {
  name = std::regex_replace(name, std::regex(R"(^(\.{0,2}/)+)"), "");
  name = std::regex_replace(name, std::regex("<[^>]*>"), "*");
  if (name.starts_with('-')) name = "*" + name;
  name = std::regex_replace(name, std::regex(R"([.\-])"), R"(\$&)");
  return std::regex(std::regex_replace(name, std::regex(R"(\*)"), "[^/]*"));
}

// Whether a path of the repository ends with this name at a component boundary.
bool exists(const std::string& name) {
  static const std::vector<std::string> files = repository_files();
  static std::map<std::string, bool> known;
  const auto [entry, is_new] = known.emplace(name, is_elsewhere(name));
  if (!is_new || entry->second) return entry->second;
  const std::regex pattern = pattern_of(name);
  for (const std::string& file : files) {
    for (size_t begin = 0; !entry->second; ++begin) {
      entry->second = std::regex_match(file.begin() + begin, file.end(), pattern);
      begin = file.find('/', begin);
      if (begin == std::string::npos) break;
    }
    if (entry->second) break;
  }
  return entry->second;
}

std::vector<std::string> absent_files(const std::string& file, const std::string& text) {
  const std::string comments = comments_of(file, text);
  std::vector<std::string> found;
  for (const Token& token : file_names(comments))
    if (!exists(token.name))
      found.push_back(fmt::format("{} names {}, which is not in the repository",
                                  place_in(file, text, token.position), token.name));
  return found;
}

std::vector<std::string> headings_of(const std::string& document) {
  static const std::regex kHeading(R"(^#+ +(.*)$)");
  std::vector<std::string> headings;
  std::istringstream lines(read_file(source_root() / document));
  std::smatch match;
  bool in_block = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) in_block = !in_block;
    if (!in_block && std::regex_match(line, match, kHeading)) headings.push_back(match[1]);
  }
  return headings;
}

// Anchors as on GitHub: lower case, without punctuation, '-' for a space.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ' || c == '-') anchor += '-';
    if (std::isalnum(byte) != 0 || c == '_' || byte >= 0x80)
      anchor += static_cast<char>(std::tolower(byte));
  }
  return anchor;
}

// A section is referenced by the section sign and its number, or by its title.
bool has_section(const std::string& document, const std::string& section) {
  const std::string number =
      section.starts_with("§") ? section.substr(std::string("§").size()) : "";
  for (const std::string& heading : headings_of(document))
    if (heading == section || (!number.empty() && heading.starts_with(number + ". "))) return true;
  return false;
}

// References in comments to sections that the named document does not have, and section signs that
// follow neither a document's path nor a paper's year.
std::vector<std::string> absent_sections(const std::string& file, const std::string& text) {
  static const std::regex kSection(R"re(([\w./-]+\.md)[\s,`()]+(§\d+|"([^"]+)"))re");
  static const std::regex kForeign(R"((19|20)\d\d[\s,)]*$|\.md[\s,`()]*$)");
  static constexpr std::string_view kDesign = "DESIGN";
  const std::string comments = comments_of(file, text);
  std::vector<std::string> found;
  if (comments.find("§") != std::string::npos || comments.find(".md") != std::string::npos) {
    for (auto at = std::sregex_iterator(comments.begin(), comments.end(), kSection);
         at != std::sregex_iterator(); ++at) {
      const std::string document = (*at)[1];
      std::string section = (*at)[3].matched ? (*at)[3] : (*at)[2];
      section = std::regex_replace(section, std::regex(R"(\s+)"), " ");
      if (filesystem::exists(source_root() / document) && !has_section(document, section))
        found.push_back(fmt::format("{}: {} has no section {}",
                                    place_in(file, text, at->position()), document, section));
    }
  }
  for (size_t at = 0; (at = comments.find(kDesign, at)) != std::string::npos; ++at)
    found.push_back(place_in(file, text, at) + ": the design without its path, docs/design.md");
  for (size_t at = 0; (at = comments.find("§", at)) != std::string::npos; ++at) {
    const size_t begin = at < 40 ? 0 : at - 40;
    if (!std::regex_search(comments.substr(begin, at - begin), kForeign))
      found.push_back(place_in(file, text, at) + ": § of no document");
  }
  return found;
}

std::string without_blocks(const std::string& text) {
  std::string kept;
  std::istringstream lines(text);
  bool in_block = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_fence = line.find("```") != std::string::npos;
    if (is_fence) in_block = !in_block;
    kept += (in_block || is_fence ? "" : line) + "\n";
  }
  return kept;
}

std::vector<std::string> broken_links(const std::string& file, const std::string& document) {
  static const std::regex kLink(R"(\]\(([^)\s#]*)(#[^)\s]*)?\))");
  const std::string text = without_blocks(document);
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kLink);
       at != std::sregex_iterator(); ++at) {
    const std::string path = (*at)[1];
    const std::string anchor = (*at)[2].matched ? (*at)[2].str().substr(1) : "";
    if (path.find("://") != std::string::npos) continue;
    const filesystem::path target =
        path.empty() ? filesystem::path(file)
                     : (filesystem::path(file).parent_path() / path).lexically_normal();
    bool is_good = filesystem::exists(source_root() / target);
    if (is_good && !anchor.empty()) {
      const std::vector<std::string> headings = headings_of(target.string());
      is_good = std::any_of(headings.begin(), headings.end(),
                            [&](const std::string& h) { return anchor_of(h) == anchor; });
    }
    if (!is_good)
      found.push_back(fmt::format("{}: {}", place_in(file, text, at->position()), at->str()));
  }
  return found;
}

// Names of ops in code. An op is defined in the files that have a table row or a member `name` for
// it.
struct OpNames {
  std::set<std::string> names;
  std::map<std::string, std::set<std::string>> files;
};

const std::regex& quoted_name() {
  static const std::regex pattern(R"re("([a-z][a-z0-9_]*)")re");
  return pattern;
}

bool is_op_folder(const std::string& file) { return file.starts_with("core/ops/"); }

// Whether the text before a quoted name makes it a definition.
bool is_definition(const std::string& file, const std::string& before) {
  static const std::regex kMember(R"(\.name = $)");
  static const std::regex kRow(R"([\w{]+[({]\s*$|^\s*\{\s*$|[\s,]\{\s*$)");
  static const std::regex kUse(R"(find_op\($|find_kernel\($)");
  return std::regex_search(before, kMember) ||
         (is_op_folder(file) && std::regex_search(before, kRow) &&
          !std::regex_search(before, kUse));
}

// Whether it is a use: a comparison, a lookup, a returned value, or an element of a list of ops.
bool is_use(const std::string& before, const std::string& after, const std::set<std::string>& ops) {
  static const std::regex kBefore(R"((==|!=|find_op\(|return)\s*$)");
  static const std::regex kAfter(R"(^\s*(==|!=))");
  static const std::regex kNext(R"re(^,\s*"([a-z][a-z0-9_]*)")re");
  static const std::regex kLast(R"re("([a-z][a-z0-9_]*)",\s*$)re");
  std::smatch match;
  const bool is_listed = (std::regex_search(after, match, kNext) && ops.contains(match[1])) ||
                         (std::regex_search(before, match, kLast) && ops.contains(match[1]));
  return is_listed || std::regex_search(before, kBefore) || std::regex_search(after, kAfter);
}

// Kernels and cases are registered by op name; in their files a list is a registration.
bool registers_by_name(const std::string& file) {
  return file.starts_with("core/devices/") || file.starts_with("core/check/");
}

template <typename Visit>
void visit_op_names(const std::string& file, const std::string& text, const OpNames& ops,
                    Visit visit) {
  constexpr size_t kReach = 80;
  const std::string code = code_of(file, text);
  for (auto at = std::sregex_iterator(code.begin(), code.end(), quoted_name());
       at != std::sregex_iterator(); ++at) {
    if (!ops.names.contains((*at)[1])) continue;
    const size_t begin = at->position();
    const size_t end = begin + at->length();
    const size_t reach = std::min(begin, kReach);
    visit((*at)[1].str(), begin, code.substr(begin - reach, reach), code.substr(end, kReach));
  }
}

OpNames op_names() {
  OpNames ops;
  for (const OpDef* op : all_ops()) ops.names.insert(std::string(op->name));
  for (const std::string& file : source_files(code_folders(), {".h", ".cc"})) {
    const std::string text = read_file(source_root() / file);
    visit_op_names(
        file, text, ops,
        [&](const std::string& op, size_t, const std::string& before, const std::string&) {
          if (is_definition(file, before)) ops.files[op].insert(file);
        });
  }
  return ops;
}

std::vector<std::string> foreign_op_names(const std::string& file, const std::string& text,
                                          const OpNames& ops) {
  std::vector<std::string> found;
  visit_op_names(file, text, ops,
                 [&](const std::string& op, size_t position, const std::string& before,
                     const std::string& after) {
                   const auto own = ops.files.find(op);
                   const bool is_own = own != ops.files.end() && own->second.contains(file);
                   const std::set<std::string> none;
                   if (!is_own && is_use(before, after, registers_by_name(file) ? none : ops.names))
                     found.push_back(
                         fmt::format("{} names the op \"{}\"", place_in(file, text, position), op));
                 });
  return found;
}

using Check = std::vector<std::string> (*)(const std::string& file, const std::string& text);

void require_none(const std::vector<std::string>& files, Check check) {
  std::vector<std::string> found;
  for (const std::string& file : files)
    for (std::string& line : check(file, read_file(source_root() / file)))
      found.push_back(std::move(line));
  print_found("texts that name what is absent", found);
  REQUIRE(found.empty());
}

std::vector<std::string> documents() {
  std::vector<std::string> files = source_files({"docs"}, {".md"});
  files.insert(files.end(), {"README.md", "CHANGELOG.md"});
  return files;
}

std::vector<std::string> commented_files() {
  std::vector<std::string> files =
      source_files(code_and_test_folders(), {".h", ".cc", ".cu", ".cuh", ".cmake", ".py", ".sh"});
  files.insert(files.end(), {"CMakeLists.txt", "runexp", "flat_tokens", "gpu_check", "runtests"});
  for (const std::string& document : documents()) files.push_back(document);
  return files;
}

TEST_CASE("comments and documents name only files that exist") {
  require_none(commented_files(), absent_files);
  REQUIRE(absent_files("x.h", "// See core/graph/op.h, op.h and `op_cases*.cc`.\n").empty());
  REQUIRE(
      absent_files("x.h", "\n// See graph/no_such_file.h.\n") ==
      std::vector<std::string>{"x.h:2 names graph/no_such_file.h, which is not in the repository"});
  REQUIRE(absent_files("x.cc", "/* p.h */ \"q.h\"; char c = '\"'; // \"r.h\"\n").size() == 2);
  REQUIRE(absent_files("x.cmake", "set(f q.cc)  # As no_such_file.cc.\n").size() == 1);
  REQUIRE(absent_files("x.md", "`no_such_folder/op.h`").size() == 1);
}

// Comments that do not begin with what a thing is or does: their first lines, not further ones,
// which begin in the same column. Tests have more forbidden words than sources.
std::vector<std::string> inverted_comments(const std::string& file, const std::string& text) {
  static const std::regex kInSources("// (Of|The same|That of|Those of) ");
  static const std::regex kInTests("// (Of|The same|That of|Those of|As|So|Who|Whose|What is) ");
  const std::regex& words = file.starts_with("tests/") ? kInTests : kInSources;
  std::vector<std::string> found;
  std::istringstream lines(text);
  size_t previous = std::string::npos;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t at = line.find("//");
    const bool is_further = at == previous && line.find_first_not_of(' ') == at;
    if (at != std::string::npos && !is_further && std::regex_search(line, words))
      found.push_back(fmt::format("{}:{}", file, number));
    previous = at;
  }
  return found;
}

TEST_CASE("comments begin with what a thing is or does") {
  require_none(source_files(code_and_test_folders(), {".h", ".cc", ".cu", ".cuh"}),
               inverted_comments);
  // Put together here, so that this file has no such comment.
  const std::string of_trailing = "int a = 1;  /" + std::string("/ Of a b.\n");
  const std::string as_line = "int a = 1;\n  /" + std::string("/ As b.\nint c;\n");
  REQUIRE(inverted_comments("x.h", of_trailing) == std::vector<std::string>{"x.h:1"});
  REQUIRE(inverted_comments("x.h", as_line).empty());
  REQUIRE(inverted_comments("tests/x.h", as_line) == std::vector<std::string>{"tests/x.h:2"});
  REQUIRE(inverted_comments("x.h", "// The number\n/" + std::string("/ Of b.\n")).empty());
  REQUIRE(inverted_comments("x.h", "int a;  // A.\n/" + std::string("/ Of b.\n")).size() == 1);
}

TEST_CASE("comments and documents name only sections that exist") {
  require_none(commented_files(), absent_sections);
  REQUIRE(absent_sections("x.h", "// (docs/testing.md, \"The\n// documents\").\n").empty());
  REQUIRE(absent_sections("x.h", "// (docs/testing.md, \"No such section\").\n").size() == 1);
  REQUIRE(absent_sections("x.h", "// See docs/testing.md §99.\n").size() == 1);
  REQUIRE(absent_sections("x.h", "// See the design, §2.\n").size() == 1);
  REQUIRE(absent_sections("x.h", "// (DESIGN: the house)\n").size() == 1);
  REQUIRE(absent_sections("x.h", "// (Shazeer and Stern, 2018, §7.1)\n").empty());
}

TEST_CASE("links in the documents refer to files and headings that exist") {
  require_none(documents(), broken_links);
  REQUIRE(broken_links("docs/x.md", "[a](testing.md#the-documents) [b](../README.md)").empty());
  REQUIRE(broken_links("docs/x.md", "[a](testing.md#no-such) [b](no_such.md)").size() == 2);
}

TEST_CASE("an op's name is a string only in the files that define or register it") {
  const OpNames ops = op_names();
  REQUIRE(ops.names.contains("einsum"));
  std::vector<std::string> found;
  for (const std::string& file : source_files(code_folders(), {".h", ".cc"}))
    for (std::string& line : foreign_op_names(file, read_file(source_root() / file), ops))
      found.push_back(std::move(line));
  print_found("names of ops outside their files", found);
  REQUIRE(found.empty());
}

TEST_CASE("a use of an op's name outside its files is reported") {
  const OpNames ops = {.names = {"slice", "add"}, .files = {{"slice", {"core/ops/x.cc"}}}};
  const auto count = [&](const std::string& file, const std::string& text) {
    return foreign_op_names(file, text, ops).size();
  };
  REQUIRE(count("core/compile/y.cc", "if (node.op->name ==\n    \"slice\") return;") == 1);
  REQUIRE(count("core/compile/y.cc", "if (\"slice\" != op) find_op(\"add\");") == 2);
  REQUIRE(count("core/compile/y.cc", "return \"slice\"; for (x : {\"slice\", \"add\"})") == 3);
  REQUIRE(count("core/ops/x.cc", "find_op(\"slice\"); find_op(\"add\");") == 1);
  REQUIRE(count("core/devices/cpu/y.cc", "Register kAdd{{\"slice\", \"add\"}, make};") == 0);
  REQUIRE(count("core/compile/y.cc", "// op == \"slice\"\nadd_input(\"slice\", v);") == 0);
}

}  // namespace
}  // namespace tessera
