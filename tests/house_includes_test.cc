// SPDX-License-Identifier: Apache-2.0
// Rules for includes: the allowed dependencies between folders, no circular includes, and no
// third-party libraries in public headers.
#include <filesystem>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/source_tree.h"

namespace tessera {
namespace {

// Lowest first. A folder may include these folders and itself. Layers see neither compile nor
// devices, and these two do not see each other.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core/base", {}},
    {"core/io", {"core/base"}},
    {"core/hparams", {"core/base", "core/io"}},
    {"core/flags", {"core/base", "core/io", "core/hparams"}},
    {"core/graph", {"core/base"}},
    {"core/ops", {"core/base", "core/graph"}},
    {"core/schedules", {"core/base"}},
    {"core/compile", {"core/base", "core/graph", "core/ops", "core/schedules"}},
    {"core/devices", {"core/base", "core/graph", "core/ops"}},
    {"core/runtime",
     {"core/base", "core/io", "core/hparams", "core/graph", "core/ops", "core/schedules",
      "core/compile", "core/devices"}},
    {"core/check",
     {"core/base", "core/io", "core/graph", "core/ops", "core/compile", "core/devices",
      "core/runtime"}},
    {"layers", {"core/base", "core/hparams", "core/graph", "core/ops"}},
    {"inputs", {"core/base", "core/io", "core/hparams", "core/flags", "core/graph"}},
    {"tasks",
     {"core/base", "core/io", "core/hparams", "core/graph", "core/ops", "core/schedules",
      "core/compile", "core/devices", "core/runtime", "core/check", "layers", "inputs"}},
    {"plugins",
     {"core/base", "core/io", "core/hparams", "core/flags", "core/graph", "core/ops",
      "core/schedules", "core/compile", "core/devices", "core/runtime", "core/check", "layers",
      "inputs", "tasks"}},
    {"experiments",
     {"core/base", "core/io", "core/hparams", "core/graph", "core/ops", "layers", "inputs", "tasks",
      "plugins"}},
};

// The order within `tasks`: a folder may include these folders of it, and itself.
const std::map<std::string, std::set<std::string>> kTasksMayInclude = {
    {"task", {}},
    {"planner", {"task"}},
    {"run", {"task", "planner"}},
    {"recipes", {"task"}},
    {"testing", {"task", "run"}},
    {"families", {}},
    {"interop", {"task", "run", "families"}},
    {"replay", {"task", "run"}},
    {"search", {"task", "planner", "run"}},
    {"sweep", {"task", "run"}},
};

// Libraries that users of public headers do not need to have.
const std::vector<std::string> kPrivate = {"boost/", "hdf5", "H5", "toml", "cuda", "mpi"};

const std::vector<std::string> kNothing;

// "file includes header" for each include that is not allowed.
std::vector<std::string> order_breaks(const std::string& file, const std::string& text) {
  std::vector<std::string> breaks;
  const std::string folder = target_folder(file);
  const std::set<std::string>& allowed = kMayInclude.at(folder);
  for (const Include& include : includes_of(text)) {
    if (!include.is_quoted || include.file.find('/') == std::string::npos) continue;
    const std::string target = target_folder(include.file);
    if (target != folder && !allowed.contains(target))
      breaks.push_back(fmt::format("{} includes {}", file, include.file));
  }
  return breaks;
}

// The folder of a file in `tasks`; "" for any other file.
std::string tasks_folder(const std::string& file) {
  const std::string top = "tasks/";
  return file.starts_with(top) ? file.substr(top.size(), file.find('/', top.size()) - top.size())
                               : "";
}

std::vector<std::string> tasks_order_breaks(const std::string& file, const std::string& text) {
  std::vector<std::string> breaks;
  const std::string folder = tasks_folder(file);
  if (folder.empty()) return breaks;
  const auto known = kTasksMayInclude.find(folder);
  if (known == kTasksMayInclude.end()) return {file + ": a folder without a place in the order"};
  for (const Include& include : includes_of(text)) {
    const std::string target = tasks_folder(include.file);
    if (!target.empty() && target != folder && !known->second.contains(target))
      breaks.push_back(fmt::format("{} includes {}", file, include.file));
  }
  return breaks;
}

std::vector<std::string> private_includes(const std::string& file, const std::string& text) {
  std::vector<std::string> shown;
  // Not installed, so not public.
  if (file.ends_with("_internal.h") || file.starts_with("plugins/cuda/")) return shown;
  for (const Include& include : includes_of(text))
    for (const std::string& name : kPrivate)
      if (!include.is_quoted && include.file.starts_with(name))
        shown.push_back(fmt::format("{} includes <{}>", file, include.file));
  return shown;
}

using Texts = std::map<std::string, std::string>;  // Texts of files by path.

const Texts& all_texts() {
  static const Texts texts = [] {
    Texts read;
    for (const std::string& file :
         source_files(code_and_test_folders(), {".h", ".cc", ".cu", ".cuh"}))
      read[file] = read_file(source_root() / file);
    return read;
  }();
  return texts;
}

template <typename Check>
std::vector<std::string> over_code(Check check, bool headers_only) {
  std::vector<std::string> found;
  for (const auto& [file, text] : all_texts()) {
    const bool is_test = file.starts_with("tests/") || file.starts_with("cmake/");
    if (is_test || (headers_only && !file.ends_with(".h"))) continue;
    for (std::string& line : check(file, text)) found.push_back(std::move(line));
  }
  return found;
}

// The node of a file: its folder, or its .h and .cc together.
using NodeOf = std::string (*)(const std::string& file);

std::string folder_node(const std::string& file) { return file.substr(0, file.rfind('/')); }
std::string pair_node(const std::string& file) { return file.substr(0, file.rfind('.')); }

// Maps each node to the nodes that it includes, with the text of one such include.
using Edges = std::map<std::string, std::map<std::string, std::string>>;

Edges edges_between(const Texts& texts, NodeOf node_of) {
  Edges edges;
  for (const auto& [file, text] : texts)
    for (const Include& include : includes_of(text)) {
      if (!include.is_quoted || !texts.contains(include.file)) continue;
      const std::string from = node_of(file);
      const std::string to = node_of(include.file);
      if (from != to) edges[from].emplace(to, fmt::format("{} includes {}", file, include.file));
    }
  return edges;
}

// Keyed by edge.
using Circles = std::map<std::string, std::string>;

// The nodes of a shortest path, both ends included; empty if no path exists.
std::vector<std::string> shortest_path(const Edges& edges, const std::string& from,
                                       const std::string& to) {
  std::map<std::string, std::string> previous = {{from, from}};
  std::queue<std::string> open({from});
  for (; !open.empty() && !previous.contains(to); open.pop()) {
    const auto next = edges.find(open.front());
    if (next == edges.end()) continue;
    for (const auto& [node, include] : next->second)
      if (previous.emplace(node, open.front()).second) open.push(node);
  }
  std::vector<std::string> path;
  if (!previous.contains(to)) return path;
  for (std::string node = to; node != from; node = previous[node]) path.insert(path.begin(), node);
  path.insert(path.begin(), from);
  return path;
}

// Each edge "from -> to" that is part of a circle, with the shortest circle through it.
Circles circles(const Texts& texts, NodeOf node_of) {
  const Edges edges = edges_between(texts, node_of);
  Circles found;
  for (const auto& [from, targets] : edges)
    for (const auto& [to, include] : targets) {
      const std::vector<std::string> back = shortest_path(edges, to, from);
      if (back.empty()) continue;
      std::string text = fmt::format("{} -> {}: {}", from, fmt::join(back, " -> "), include);
      for (size_t i = 0; i + 1 < back.size(); ++i) text += "; " + edges.at(back[i]).at(back[i + 1]);
      found.emplace(fmt::format("{} -> {}", from, to), text);
    }
  return found;
}

void require_no_circle(const std::string& kind, NodeOf node_of) {
  std::vector<std::string> found;
  for (const auto& [edge, circle] : circles(all_texts(), node_of)) found.push_back(circle);
  print_found("circles of includes between " + kind + "s", found);
  REQUIRE(found.empty());
}

TEST_CASE("every folder includes only allowed folders") {
  REQUIRE(over_code(order_breaks, false) == kNothing);
  REQUIRE(order_breaks("layers/x.cc", "#include \"core/compile/autodiff.h\"\n").size() == 1);
  REQUIRE(order_breaks("core/devices/cpu/x.h", "#include \"core/hparams/field.h\"\n").size() == 1);
  REQUIRE(order_breaks("tasks/run/x.cc", "#include \"core/compile/autodiff.h\"\n").empty());
}

TEST_CASE("in tasks, a task includes no planner, and a planner no run") {
  REQUIRE(over_code(tasks_order_breaks, false) == kNothing);
  REQUIRE(tasks_order_breaks("tasks/task/x.h", "#include \"tasks/planner/plan.h\"\n").size() == 1);
  REQUIRE(
      tasks_order_breaks("tasks/planner/x.cc", "#include \"tasks/run/log/console.h\"\n").size() ==
      1);
  REQUIRE(tasks_order_breaks("tasks/run/log/x.cc", "#include \"tasks/planner/plan.h\"\n").empty());
  REQUIRE(tasks_order_breaks("tasks/x.cc", "").size() == 1);
}

TEST_CASE("public headers include no Boost, HDF5, toml++, MPI or CUDA") {
  REQUIRE(over_code(private_includes, true) == kNothing);
  REQUIRE(private_includes("x.h", "#include <boost/dll.hpp>\n").size() == 1);
}

TEST_CASE("includes between folders form no circle") { require_no_circle("folder", folder_node); }

TEST_CASE("includes between pairs of a header and its source form no circle") {
  require_no_circle("pair", pair_node);
}

TEST_CASE("a circle of includes is reported for each of its edges") {
  const Texts texts = {{"a/x.h", ""},
                       {"a/x.cc", "#include \"a/x.h\"\n#include \"a/b/y.h\"\n#include <a/b/y.h>\n"},
                       {"a/b/y.h", ""},
                       {"a/b/y.cc", "#include \"c/z.h\"\n"},
                       {"c/z.h", "\n#include \"a/x.h\"\n"},
                       {"c/w.h", "\n#include \"c/z.h\"\n"}};
  const Circles found = circles(texts, folder_node);
  REQUIRE(found.size() == 3);
  REQUIRE(found.at("a -> a/b") ==
          "a -> a/b -> c -> a: a/x.cc includes a/b/y.h; a/b/y.cc includes c/z.h; c/z.h includes "
          "a/x.h");
  REQUIRE(circles(texts, pair_node).size() == 3);
  Texts tree = texts;
  tree["c/z.h"] = "";
  REQUIRE(circles(tree, folder_node).empty());
  REQUIRE(circles(tree, pair_node).empty());
}

}  // namespace
}  // namespace tessera
