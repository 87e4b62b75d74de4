// SPDX-License-Identifier: Apache-2.0
// task.train.init_from: initial weights from another run.
#pragma once

#include "tasks/hparams.h"
#include "tasks/logging/console.h"
#include "tasks/train/train_session.h"

namespace tessera {

// Reads them into the session and prints which were taken. Error if that run has no checkpoint.
void take_weights(const InitFrom& other, Session& session, Console& console);

}  // namespace tessera
