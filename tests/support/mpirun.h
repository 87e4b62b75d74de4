// SPDX-License-Identifier: Apache-2.0
// Runs programs of this build as several processes under mpirun.
#pragma once

#include <string>

#include "tests/support/child.h"

namespace tessera {

// Why mpirun cannot be used here ("mpirun is not installed"); empty if it can. Tests that need it
// return skip_test(reason).
std::string why_no_mpirun();

// Why mpirun on two hosts (tests/support/two_hosts.sh) cannot be used here; empty if it can.
std::string why_no_two_hosts();

// `mpirun <options> bin/<program> <arguments>`. There may be more processes than processors.
std::string mpirun_command(const std::string& options, const std::string& program,
                           const std::string& arguments);

// The same command on two hosts, with options of two_hosts.sh.
std::string two_hosts_command(const std::string& options, const std::string& command);

}  // namespace tessera
