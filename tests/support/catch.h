// SPDX-License-Identifier: Apache-2.0
// Catch2 without its CHECK, which conflicts with core/base/error.h. Tests use REQUIRE. Include this
// instead of <catch2/catch.hpp>, in any order.
#pragma once

#include "core/base/error.h"

#pragma push_macro("CHECK")
#undef CHECK
#include <catch2/catch.hpp>
#undef CHECK
#pragma pop_macro("CHECK")
