// SPDX-License-Identifier: Apache-2.0
// SIGTERM, Ctrl-C, SIGUSR1 (which mpirun and Slurm pass on without haste) and SIGHUP (the terminal
// is closed; under nohup it is ignored) as a wish to stop at the next step boundary. A second
// Ctrl-C kills as usual.
#pragma once

namespace tessera {

// Listens while it lives; what was installed before is put back. Several hear the same signal.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  int requested() const;                // The signal's number; 0: none came.
  static const char* name(int signal);  // "SIGTERM", "Ctrl-C", "SIGUSR1", "SIGHUP"
};

}  // namespace tessera
