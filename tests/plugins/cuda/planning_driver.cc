// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda.so.1 without a GPU, for the real cuDNN. The library makes plans for a GPU
// that a text describes (NVIDIA's "deviceless" plans), and needs a driver only to load the kernels.
// Defines only functions that it looks up; the types are not those of <cuda.h>.
namespace {
constexpr int kSuccess = 0, kNoDevice = 100, kNotFound = 500;
int g_object = 0;  // The object of all handles, which are not used.
}  // namespace

extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotFound;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuLibraryLoadData(void** library) {
  *library = &g_object;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &g_object;
  return kSuccess;
}

#define TESSERA_DOES_NOTHING(name) \
  int name() { return kSuccess; }
TESSERA_DOES_NOTHING(cuCtxGetCurrent)
TESSERA_DOES_NOTHING(cuCtxGetLimit)
TESSERA_DOES_NOTHING(cuCtxPopCurrent)
TESSERA_DOES_NOTHING(cuCtxPushCurrent)
TESSERA_DOES_NOTHING(cuDeviceGet)
TESSERA_DOES_NOTHING(cuDeviceGetCount)
TESSERA_DOES_NOTHING(cuGetErrorName)
TESSERA_DOES_NOTHING(cuGetErrorString)
TESSERA_DOES_NOTHING(cuKernelGetAttribute)
TESSERA_DOES_NOTHING(cuKernelSetAttribute)
TESSERA_DOES_NOTHING(cuLaunchCooperativeKernel)
TESSERA_DOES_NOTHING(cuLaunchKernel)
TESSERA_DOES_NOTHING(cuLaunchKernelEx)
TESSERA_DOES_NOTHING(cuLibraryLoadFromFile)
TESSERA_DOES_NOTHING(cuLibraryUnload)
TESSERA_DOES_NOTHING(cuLinkAddData)
TESSERA_DOES_NOTHING(cuLinkComplete)
TESSERA_DOES_NOTHING(cuLinkCreate)
TESSERA_DOES_NOTHING(cuLinkDestroy)
TESSERA_DOES_NOTHING(cuOccupancyMaxPotentialClusterSize)
TESSERA_DOES_NOTHING(cuStreamGetCtx)
#undef TESSERA_DOES_NOTHING

}  // extern "C"
