// SPDX-License-Identifier: Apache-2.0
// Programs of this build run by a test as several processes.
#pragma once

#include <string>

#include "tests/support/shell.h"

namespace tessera {

// Why nothing can be run by mpirun here ("mpirun is not installed"); empty if it can. Tests that
// need it return skip_test(reason).
std::string why_no_mpirun();

// Why there cannot be two hosts besides (tests/support/two_hosts.sh); empty if there can.
std::string why_no_two_hosts();

// `mpirun <options> bin/<program> <arguments>`; more processes than processors are fine.
std::string mpirun_command(const std::string& options, const std::string& program,
                           const std::string& arguments);

// The same command on two hosts, with options of two_hosts.sh.
std::string two_hosts_command(const std::string& options, const std::string& command);

}  // namespace tessera
