// SPDX-License-Identifier: Apache-2.0
// All optimizers. Their state is f32 unless `state` says bf16, whatever the parameter's dtype.
// Weight decay is decoupled: it does not enter the moments.
#pragma once

#include "tasks/task/learner/adafactor.h"
#include "tasks/task/learner/adagrad.h"
#include "tasks/task/learner/adam.h"
#include "tasks/task/learner/muon.h"
#include "tasks/task/learner/schedule_free.h"
#include "tasks/task/learner/sgd.h"
#include "tasks/task/learner/shampoo.h"
#include "tasks/task/learner/sophia.h"
