// SPDX-License-Identifier: Apache-2.0
#include "tasks/train/run_introduction.h"

#include <fmt/format.h>

#include "core/passes/spmd/layout_lint.h"
#include "tasks/logging/throughput.h"
#include "tasks/logging/weight_table.h"
#include "tasks/plan/plan.h"
#include "tasks/session/check_rules.h"

namespace tessera {

void introduce_run(const std::string& title, Session& session, const Device& device,
                   Console& console) {
  console.info(title);
  const int64_t devices = session.mesh().num_devices();
  const std::string each =
      fmt::format("{}; {}, which mfu is measured against", device.description(), peak_text(device));
  console.info(devices == 1 ? each
                            : fmt::format("{} devices (mesh {}), each {}", devices,
                                          session.mesh().text(), each));
  if (!session.remark().empty()) console.info(session.remark());
  console.info(weight_table(session.task().model().parameters()));
  console.info(plan_summary(session.plan()));
  warn_of_layouts(session, console);
}

void warn_of_layouts(const Session& session, Console& console) {
  for (const std::string& warning : layout_lint(session.train_graph(), session.mesh()))
    console.info("warning: " + warning);
  for (const std::string& warning :
       idle_mesh_axes(session.rules(), session.mesh(), session.train_graph()))
    console.info("warning: " + warning);
}

}  // namespace tessera
