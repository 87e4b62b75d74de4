// SPDX-License-Identifier: Apache-2.0
// The output of a run before its first step: directory, devices, weights, cost of a step, and
// warnings about layouts.
#pragma once

#include <string>

#include "core/backend/backend.h"
#include "tasks/logging/console.h"
#include "tasks/train/train_session.h"

namespace tessera {

// `title` names the experiment and the run's directory; `device` is one of the devices.
void introduce_run(const std::string& title, Session& session, const Device& device,
                   Console& console);

void warn_of_layouts(const Session& session, Console& console);

}  // namespace tessera
