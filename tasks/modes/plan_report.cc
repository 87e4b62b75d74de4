// SPDX-License-Identifier: Apache-2.0
#include "tasks/modes/plan_report.h"

#include "core/graph/svg.h"
#include "core/io/file.h"

namespace tessera {

void write_plan_files(const std::filesystem::path& run_directory, Session& session) {
  const Plan plan = make_plan(session);
  write_file_atomically(run_directory / "plan.txt", plan_text(plan));
  write_file_atomically(run_directory / "plan.json", plan_json(plan) + "\n");
  write_file_atomically(run_directory / "graph.svg", graph_svg(session.train_graph()));
}

}  // namespace tessera
