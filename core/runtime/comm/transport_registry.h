// SPDX-License-Identifier: Apache-2.0
// The kinds of transport that plugins have registered. Registering only records: it happens while a
// shared library is being opened, where nothing may throw.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

// Joins the processes that were started together with this one; Error if it cannot. Called once.
using MakeTransport = std::shared_ptr<Transport> (*)();

// The later of two with one name counts.
void register_transport(std::string_view name, MakeTransport make);

// In order of name.
std::vector<std::string> registered_transports();

// Error, naming those there are, if no such kind is registered.
std::shared_ptr<Transport> make_transport(std::string_view name);

}  // namespace tessera
