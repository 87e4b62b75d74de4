// SPDX-License-Identifier: Apache-2.0
// A prompt and its continuations as a person reads them. Files have decoder_out.h.
#pragma once

#include <string>

#include "tasks/decode/decode_examples.h"

namespace tessera {

enum class SampleIds { kHidden, kShown };

// The prompt and its continuations, each under a heading. Control characters and invalid bytes are
// escaped. kShown: with a line of ids beneath each text that is not ids itself.
std::string sample_view(const DecodedExample& example, SampleIds ids = SampleIds::kHidden);

}  // namespace tessera
