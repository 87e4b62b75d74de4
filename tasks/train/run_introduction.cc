// SPDX-License-Identifier: Apache-2.0
#include "tasks/train/run_introduction.h"

#include <fmt/format.h>

#include "core/passes/spmd/layout_lint.h"
#include "tasks/logging/throughput.h"
#include "tasks/logging/weight_table.h"
#include "tasks/plan/plan_report.h"
#include "tasks/session/check_rules.h"

namespace tessera {

void introduce_run(const std::string& title, Session& session, const Device& device,
                   Console& console) {
  console.say(title);
  const int64_t devices = session.mesh().num_devices();
  const std::string each =
      fmt::format("{}; {}, which mfu is measured against", device.description(), peak_text(device));
  console.say(devices == 1 ? each
                           : fmt::format("{} devices (mesh {}), each {}", devices,
                                         session.mesh().text(), each));
  if (!session.remark().empty()) console.say(session.remark());
  console.say(weight_table(session.task().model().parameters()));
  console.say(plan_summary(session.plan()));
  warn_of_layouts(session, console);
}

void warn_of_layouts(const Session& session, Console& console) {
  for (const std::string& warning : layout_lint(session.train_graph(), session.mesh()))
    console.say("warning: " + warning);
  for (const std::string& warning :
       idle_mesh_axes(session.rules(), session.mesh(), session.train_graph()))
    console.say("warning: " + warning);
}

}  // namespace tessera
