// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl on virtual GPUs, of one process or of several on one machine. A collective
// is two pieces of work in the stream: one writes the operand to a file of the communicator's
// folder, the other waits for the files of all ranks and computes. So it waits as NCCL's does,
// without the host, and the virtual GPU checks its accesses. Sums are in the order of a ring, not
// in that of the ranks. Calls answer "in progress" first, as a non-blocking communicator's do.
#pragma once

extern "C" {

// Makes the n-th operation of this process (counted from 1, of all communicators) go wrong, as does
// the environment variable TESSERA_FAKE_NCCL_FAULT:
//   remote_error:n  the communicator reports ncclRemoteError, and the operation does not end
//   refused:n       the call returns ncclInternalError
//   lost:n          this rank never arrives at it
//   no_connection   connecting returns ncclSystemError
//   old_version     the library is version 2.13.4
// With ":rRANK" behind it only in the process of that rank, the last one that connected.
void fake_nccl_set_fault(const char* fault);

}  // extern "C"
