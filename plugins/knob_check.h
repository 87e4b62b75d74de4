// SPDX-License-Identifier: Apache-2.0
// Checks that every member of an experiment is a knob. Experiments are not aggregates, so the
// compiler cannot count their members as it does for HParams (core/hparams/fields_check.h); instead
// the bytes written by construction are compared with those of the knobs.
#pragma once

#include "plugins/registry.h"

namespace tessera {

// Error for a member that FIELDS does not list: --set, --describe and hparams.toml would miss it,
// and a run could resume with another value.
void check_knobs(const ExperimentEntry& entry);

}  // namespace tessera
