// SPDX-License-Identifier: Apache-2.0
// task.train.init_from: weights of another run in place of fresh ones.
#pragma once

#include "tasks/train_hparams.h"
#include "tasks/logging/console.h"
#include "tasks/train/train_session.h"

namespace tessera {

// Reads them into the session and says which were taken. Error if that run has no checkpoint.
void take_weights(const InitFrom& other, Session& session, Console& console);

}  // namespace tessera
