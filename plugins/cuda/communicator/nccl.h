// SPDX-License-Identifier: Apache-2.0
// NVIDIA's collectives library (libnccl.so.2), loaded at run time. The CUDA toolkit does not have
// its header, so the part of its interface that we use is declared here, as it is since NCCL 2.14.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::cuda {

// With the library's own names of functions and values.
// NOLINTBEGIN(readability-identifier-naming): the names of the library.
namespace nccl {

struct Comm;  // Opaque: one rank of a communicator.
struct UniqueId {
  char bytes[128];
};
enum Result : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum DataType : int {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
enum RedOp : int { ncclSum = 0, ncclMax = 2 };

inline constexpr int kVersion = 21400;  // These declarations'; newer libraries have them.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = kVersion;
  int blocking = 1;
};

Result ncclGetVersion(int* version);
const char* ncclGetErrorString(Result result);
const char* ncclGetLastError(Comm* comm);
Result ncclGetUniqueId(UniqueId* id);
Result ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config);
Result ncclCommGetAsyncError(Comm* comm, Result* error);
Result ncclCommFinalize(Comm* comm);
Result ncclCommDestroy(Comm* comm);
Result ncclCommAbort(Comm* comm);
Result ncclGroupStart();
Result ncclGroupEnd();
Result ncclAllReduce(const void* from, void* to, size_t count, DataType type, RedOp op, Comm* comm,
                     CUstream stream);
Result ncclReduceScatter(const void* from, void* to, size_t count, DataType type, RedOp op,
                         Comm* comm, CUstream stream);
Result ncclAllGather(const void* from, void* to, size_t count, DataType type, Comm* comm,
                     CUstream stream);
Result ncclSend(const void* from, size_t count, DataType type, int peer, Comm* comm,
                CUstream stream);
Result ncclRecv(void* to, size_t count, DataType type, int peer, Comm* comm, CUstream stream);

}  // namespace nccl
// NOLINTEND(readability-identifier-naming)

// clang-format off
#define TESSERA_NCCL_FUNCTIONS(X)                                                              \
  X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId)               \
  X(ncclCommInitRankConfig) X(ncclCommGetAsyncError) X(ncclCommFinalize) X(ncclCommDestroy)    \
  X(ncclCommAbort) X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllReduce) X(ncclReduceScatter)     \
  X(ncclAllGather) X(ncclSend) X(ncclRecv)
// clang-format on

// A member for each function.
struct Nccl {
#define TESSERA_MEMBER(name) decltype(&nccl::name) name = nullptr;
  TESSERA_NCCL_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

  // visit(member, symbol) for each function.
  template <typename Visit>
  void for_each(const Visit& visit) {
#define TESSERA_TEXT(name) #name
#define TESSERA_VISIT(name) visit(name, TESSERA_TEXT(name));
    TESSERA_NCCL_FUNCTIONS(TESSERA_VISIT)
#undef TESSERA_VISIT
#undef TESSERA_TEXT
  }

  // Throws "NCCL, <what>: <the library's text>" unless `result` is success or in progress. `comm`
  // may be null.
  void check(nccl::Result result, nccl::Comm* comm, std::string_view what) const;
};
#undef TESSERA_NCCL_FUNCTIONS

// The file that is opened instead, if this environment variable is set.
inline constexpr const char* kNcclVariable = "TESSERA_NCCL";

// Null if the library cannot be used; `why` then says so in one sentence (OptionalLibrary).
const Nccl* find_nccl(std::string& why);

}  // namespace tessera::cuda
