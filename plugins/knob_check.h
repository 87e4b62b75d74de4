// SPDX-License-Identifier: Apache-2.0
// Every member of an experiment is a knob. Experiments are no aggregates, so the compiler cannot
// count their members as it does those of HParams (core/hparams/fields_check.h); instead the bytes
// that construction writes are compared with those of the knobs.
#pragma once

#include "plugins/registry.h"

namespace tessera {

// Error for a member that FIELDS does not list: --set, --describe and hparams.toml would not know
// it, and a run could go on with another value than it was begun with.
void check_knobs(const ExperimentEntry& entry);

}  // namespace tessera
