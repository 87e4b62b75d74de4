// SPDX-License-Identifier: Apache-2.0
// Drawings of graphs, with scripts in place of graphviz's `dot`.
#include "tasks/run/directory/graph_drawing.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/io/file.h"
#include "core/ops/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

Graph tanh_graph() {
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  output("y", tanh(input("x", InputKind::kBatch, parse_type("f32[\"row=4\"]"))));
  return graph;
}

// Sets PATH while a drawing starts: a folder with a script named `dot`, or without one, before the
// given folders.
class PathWithDot {
 public:
  PathWithDot(const fs::path& folder, const std::string& script, const std::string& rest)
      : old_(std::getenv("PATH")) {
    fs::create_directories(folder);
    if (!script.empty()) {
      std::ofstream(folder / "dot") << "#!/bin/sh\n" << script;
      fs::permissions(folder / "dot", fs::perms::owner_all);
    }
    ::setenv("PATH", (folder.string() + rest).c_str(), 1);
  }
  ~PathWithDot() { ::setenv("PATH", old_.c_str(), 1); }

 private:
  std::string old_;
};

constexpr const char* kSystem = ":/usr/bin:/bin";

TEST_CASE("without graphviz the DOT file is written and a note says how to draw it") {
  const TemporaryDirectory run;
  const PathWithDot path(run / "bin", "", "");
  const GraphDrawing drawing(tanh_graph(), run / "graph");
  REQUIRE(fs::exists(run / "graph.dot"));
  REQUIRE_THAT(drawing.note(), Catch::Contains("apt install graphviz") &&
                                   Catch::Contains((run / "graph.svg").string()));
}

TEST_CASE("dot runs in the background and accepts paths with special characters") {
  const TemporaryDirectory run;
  const fs::path folder = run / "a b;\"$(touch x)'";
  fs::create_directories(folder);
  // Called as dot -Tsvg -o OUTPUT INPUT.
  const PathWithDot path(run / "bin", "cp \"$4\" \"$3\"\n", kSystem);
  { REQUIRE(GraphDrawing(tanh_graph(), folder / "graph").note().empty()); }
  REQUIRE(fs::exists(folder / "graph.svg"));
  REQUIRE(fs::file_size(folder / "graph.svg") == fs::file_size(folder / "graph.dot"));
  REQUIRE_FALSE(fs::exists(temporary_beside(folder / "graph.svg", "new")));
}

TEST_CASE("a dot process that fails or hangs leaves no drawing and is not an error") {
  const TemporaryDirectory run;
  for (const char* script :
       {"echo half > \"$3\"; exit 1\n", "echo half > \"$3\"; exec sleep 1000\n"}) {
    INFO(script);
    const PathWithDot path(run / "bin", script, kSystem);
    std::ofstream(run / "graph.svg") << "of an earlier graph";
    { const GraphDrawing drawing(tanh_graph(), run / "graph", std::chrono::seconds(1)); }
    REQUIRE(fs::exists(run / "graph.dot"));
    REQUIRE_FALSE(fs::exists(run / "graph.svg"));
    REQUIRE_FALSE(fs::exists(temporary_beside(run / "graph.svg", "new")));
  }
}

TEST_CASE("A drawing is not written through a link or into a FIFO that someone has put there") {
  const TemporaryDirectory run, elsewhere;
  write_bytes(elsewhere / "precious", "precious");
  for (const char* name : {"graph.svg", "graph.svg.part", "graph.dot"})
    fs::create_symlink(elsewhere / "precious", run / name);
  fs::create_directory_symlink(elsewhere.path(), temporary_beside(run / "graph.svg", "new"));
  const PathWithDot path(run / "bin", "echo drawn > \"$3\"\n", kSystem);
  { const GraphDrawing drawing(tanh_graph(), run / "graph"); }
  REQUIRE(read_file(run / "graph.svg") == "drawn\n");
  REQUIRE_FALSE(fs::is_symlink(run / "graph.svg"));
  REQUIRE(read_bytes(elsewhere / "precious") == "precious");
  REQUIRE(std::distance(fs::directory_iterator(elsewhere.path()), {}) == 1);
}

TEST_CASE("a drawing replaces a link that appears while dot runs") {
  const TemporaryDirectory run, elsewhere;
  // A folder: mv would move the drawing into it.
  const PathWithDot path(run / "bin",
                         fmt::format("ln -s '{}' '{}'\necho drawn > \"$3\"\n",
                                     elsewhere.path().string(), (run / "graph.svg").string()),
                         kSystem);
  { const GraphDrawing drawing(tanh_graph(), run / "graph"); }
  REQUIRE(fs::is_empty(elsewhere.path()));
  REQUIRE(read_file(run / "graph.svg") == "drawn\n");
}

TEST_CASE("a slow drawing is finished after the end of a run, which does not wait for it") {
  const TemporaryDirectory run;
  const PathWithDot path(run / "bin", "sleep 4\necho drawn > \"$3\"\n", kSystem);
  const auto begin = std::chrono::steady_clock::now();
  { const GraphDrawing drawing(tanh_graph(), run / "graph"); }
  REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(4));
  REQUIRE_FALSE(fs::exists(run / "graph.svg"));
  REQUIRE(comes_true([&] { return fs::exists(run / "graph.svg"); }));
  REQUIRE(read_file(run / "graph.svg") == "drawn\n");
}

TEST_CASE("A drawing has limited processor time and is found to be done while the run goes on") {
  const TemporaryDirectory run;
  const PathWithDot path(run / "bin", "ulimit -t > \"$3\"\n", kSystem);
  GraphDrawing drawing(tanh_graph(), run / "graph", std::chrono::seconds(600));
  while (!drawing.is_done()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(read_file(run / "graph.svg") == "600\n");
}

TEST_CASE("A cancelled drawing, or one of a run that fails, is not waited for") {
  const TemporaryDirectory run;
  const PathWithDot path(run / "bin", "echo half > \"$3\"; exec sleep 1000\n", kSystem);
  const auto begin = std::chrono::steady_clock::now();
  constexpr std::chrono::seconds kLimit(600);
  {
    GraphDrawing drawing(tanh_graph(), run / "graph", kLimit);
    REQUIRE_FALSE(drawing.is_done());
    drawing.cancel();
    REQUIRE(drawing.is_done());
  }
  try {
    const GraphDrawing drawing(tanh_graph(), run / "graph", kLimit);
    fail("the run failed");
  } catch (const Error&) {
  }
  REQUIRE(std::chrono::steady_clock::now() - begin < kLimit);
  REQUIRE_FALSE(fs::exists(run / "graph.svg"));
  REQUIRE_FALSE(fs::exists(temporary_beside(run / "graph.svg", "new")));
}

}  // namespace
}  // namespace tessera
