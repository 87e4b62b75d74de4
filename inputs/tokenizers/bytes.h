// SPDX-License-Identifier: Apache-2.0
// The tokenizer without a vocabulary: byte b is id b + 1, and 0 is reserved.
#pragma once

#include <memory>

#include "inputs/tokenizer.h"

namespace tessera {

std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace tessera
