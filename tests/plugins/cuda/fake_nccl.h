// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl on virtual GPUs, of one process or of several on one machine. A collective
// is two tasks in the stream: one writes the operand to a file of the communicator's folder, the
// other waits for the files of all ranks and computes. It waits without the host, like NCCL's, and
// the virtual GPU checks its accesses. Sums are in the order of a ring, not in the order of ranks.
// Calls return "in progress" first, like those of a non-blocking communicator.
#pragma once

extern "C" {

// Makes the n-th operation of this process (counted from 1, over all communicators) fail. The
// environment variable TESSERA_FAKE_NCCL_FAULT does the same. Faults:
//   remote_error:n  the communicator reports ncclRemoteError, and the operation does not end
//   refused:n       the call returns ncclInternalError
//   lost:n          this rank never arrives at it
//   no_connection   connecting returns ncclSystemError
//   old_version     the library is version 2.13.4
// The suffix ":rRANK" limits it to the process whose last connected rank is RANK.
void fake_nccl_set_fault(const char* fault);

}  // extern "C"
