// SPDX-License-Identifier: Apache-2.0
// What a run says of itself before its first step: where it is, its devices, its weights, what a
// step takes, and what is odd about its layouts.
#pragma once

#include <string>

#include "core/backend/backend.h"
#include "tasks/logging/console.h"
#include "tasks/train/train_session.h"

namespace tessera {

// `title` names the experiment and the run's directory; `device` is one of the run's.
void introduce_run(const std::string& title, Session& session, const Device& device,
                   Console& console);

void warn_of_layouts(const Session& session, Console& console);

}  // namespace tessera
