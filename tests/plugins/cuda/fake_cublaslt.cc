// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/cuda/fake_cublaslt.h"

#include <cublasLt.h>
#include <cuda.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/virtual_gpu/device_state.h"

// The objects behind the library's opaque pointers.
struct FakeLayout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batches = 1;
  int64_t stride = 0;
};
struct FakeDescription {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  CUdeviceptr bias = 0, auxiliary = 0, a_scale = 0, b_scale = 0;
  int32_t bias_type = -1;
  int64_t auxiliary_leading = 0, auxiliary_stride = 0;
};
struct FakePreference {
  uint64_t workspace = 0;
  std::map<int, uint32_t> other;
};

namespace {

FakeCublasLtCounts g_counts;
FakeCublasLtBehaviour g_behaviour;
const std::string_view g_fault = [] {
  const char* const fault = std::getenv("TESSERA_FAKE_CUBLASLT_FAULT");
  return fault == nullptr ? "" : fault;
}();

// The number of the algorithm that the heuristic returns in this process; empty: 0.
const std::string g_offered = [] {
  const char* const list = std::getenv("TESSERA_FAKE_CUBLASLT_OFFERS");
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (list == nullptr) return std::string();
  const std::string numbers = list;  // Single digits, separated by a character.
  const size_t place = rank == nullptr ? 0 : 2 * static_cast<size_t>(std::atoi(rank));
  return numbers.substr(std::min(place, numbers.size() - 1), 1);
}();

// The marker in data[0] of an algorithm; data[1] is its number, data[2] its workspace.
constexpr uint64_t kMagic = 0x66616b65;
constexpr uint64_t kRefusedWhenRun = 2, kRoundsUp = 3;

FakeLayout* as_layout(cublasLtMatrixLayout_t layout) {
  return reinterpret_cast<FakeLayout*>(layout);
}
FakeDescription* as_description(cublasLtMatmulDesc_t description) {
  return reinterpret_cast<FakeDescription*>(description);
}

template <typename T, typename Handle>
cublasStatus_t create(Handle* handle, const T& object) {
  *handle = reinterpret_cast<Handle>(new T(object));
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Handle>
cublasStatus_t destroy(Handle handle) {
  delete reinterpret_cast<T*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t assign(T& to, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool uses_auxiliary(uint32_t epilogue) { return (epilogue & 128) != 0; }
bool has_bias(uint32_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

// Returns the rows and columns of op(matrix).
std::pair<uint64_t, uint64_t> operand_size(const FakeLayout& layout, cublasOperation_t transpose) {
  if (transpose == CUBLAS_OP_N) return {layout.rows, layout.columns};
  return {layout.columns, layout.rows};
}

bool is_valid(const FakeLayout& layout) {
  return layout.rows > 0 && layout.columns > 0 && layout.batches > 0 &&
         layout.leading >= static_cast<int64_t>(layout.rows);
}
// Whether the matrices of a batch do not overlap; required of results.
bool are_apart(const FakeLayout& layout, int64_t leading, int64_t stride) {
  return layout.batches == 1 || stride >= leading * static_cast<int64_t>(layout.columns);
}

// Whether cublasLtEpilogue_t has this value.
bool is_known(uint32_t epilogue) {
  static const std::set<uint32_t> known = {
      CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_RELU,   CUBLASLT_EPILOGUE_BIAS,
      CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_GELU,   CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX,    CUBLASLT_EPILOGUE_DGELU,  CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
      CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
  return known.contains(epilogue);
}

bool is_valid(const FakeDescription& d, const FakeLayout& a, const FakeLayout& b,
              const FakeLayout& c) {
  if (!is_valid(a) || !is_valid(b) || !is_valid(c)) return false;
  const auto [m, k] = operand_size(a, d.transpose_a);
  const auto [other_k, n] = operand_size(b, d.transpose_b);
  if (m != c.rows || n != c.columns || k != other_k) return false;
  if (a.batches != c.batches || b.batches != c.batches) return false;
  if (!is_known(d.epilogue) || !are_apart(c, c.leading, c.stride)) return false;
  if (is_fp8(a.type) != is_fp8(b.type)) return false;
  if (is_fp8(a.type)) {
    // An H100 with cuBLASLt 13.1 refused scales at other addresses.
    if (d.a_scale % 16 != 0 || d.b_scale % 16 != 0 || !d.a_scale || !d.b_scale) return false;
  } else if (a.type != b.type) {
    return false;
  }
  // BIAS_DATA_TYPE of the library: by default the type of the result, but bf16 for 8-bit operands
  // and an f32 result.
  const auto bias_type = is_fp8(a.type) && c.type == CUDA_R_32F ? CUDA_R_16BF : c.type;
  if (has_bias(d.epilogue) && (d.bias == 0 || d.bias_type != bias_type)) return false;
  if (!uses_auxiliary(d.epilogue)) return true;
  return d.auxiliary != 0 && d.auxiliary_leading % 8 == 0 && d.auxiliary_stride % 8 == 0 &&
         d.auxiliary_leading >= static_cast<int64_t>(c.rows) &&
         are_apart(c, d.auxiliary_leading, d.auxiliary_stride);
}

// Whether a product of 8-bit floats is supported. By cuBLAS's documentation, on Ada and Hopper A is
// transposed and B is not, at most one is E5M2, and lines are multiples of 16 bytes. Older GPUs
// have none.
bool is_supported(const FakeDescription& d, const FakeLayout& a, const FakeLayout& b,
                  const FakeLayout& c) {
  if (!is_fp8(a.type)) return true;
  if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) return false;
  if (tessera::virtual_gpu::state().config.capability < 89) return false;
  const uint64_t c_bytes = c.type == CUDA_R_16BF ? 2 : 4;
  return d.transpose_a == CUBLAS_OP_T && d.transpose_b == CUBLAS_OP_N && a.rows % 16 == 0 &&
         a.leading % 16 == 0 && b.leading % 16 == 0 && c.rows * c_bytes % 16 == 0 &&
         static_cast<uint64_t>(c.leading) * c_bytes % 16 == 0;
}

int64_t element_bytes(cudaDataType_t type) {
  return is_fp8(type) ? 1 : type == CUDA_R_16BF ? 2 : 4;
}

// Decodes sign, exponent and `digits` bits of fraction. Subnormal numbers have an exponent of 0.
float decoded_fp8(uint8_t code, int digits, int bias) {
  const int exponent = (code & 0x7f) >> digits;
  const double fraction = std::ldexp(code & ((1 << digits) - 1), -digits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return static_cast<float>(code & 0x80 ? -magnitude : magnitude);
}

float decoded(const std::byte* bytes, cudaDataType_t type) {
  if (type == CUDA_R_8F_E4M3) return decoded_fp8(static_cast<uint8_t>(*bytes), 3, 7);
  if (type == CUDA_R_8F_E5M2) return decoded_fp8(static_cast<uint8_t>(*bytes), 2, 15);
  if (type == CUDA_R_32F) {
    float value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void encode(float value, cudaDataType_t type, std::byte* bytes) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (type == CUDA_R_32F) {
    std::memcpy(bytes, &bits, sizeof(bits));
    return;
  }
  bits += 0x7fff + (bits >> 16 & 1);  // Round to nearest, ties to even.
  const auto high = static_cast<uint16_t>(bits >> 16);
  std::memcpy(bytes, &high, sizeof(high));
}

// One matrix of a batch on the host. Does not access memory between columns.
class HostMatrix {
 public:
  HostMatrix(CUdeviceptr base, const FakeLayout& layout, int32_t batch)
      : layout_(layout),
        bytes_(element_bytes(layout.type)),
        begin_(base + static_cast<CUdeviceptr>(batch * layout.stride * bytes_)),
        values_(layout.rows * layout.columns) {}

  bool read(CUstream stream) {
    return move(
        [&](CUdeviceptr device, std::byte* host, size_t bytes) {
          return cuMemcpyDtoHAsync(host, device, bytes, stream) == CUDA_SUCCESS;
        },
        stream, true);
  }
  bool write(CUstream stream) {
    return move(
        [&](CUdeviceptr device, std::byte* host, size_t bytes) {
          return cuMemcpyHtoDAsync(device, host, bytes, stream) == CUDA_SUCCESS;
        },
        stream, false);
  }
  float& at(uint64_t row, uint64_t column) { return values_[column * layout_.rows + row]; }
  float of(cublasOperation_t transpose, uint64_t row, uint64_t column) {
    return transpose == CUBLAS_OP_N ? at(row, column) : at(column, row);
  }

 private:
  template <typename Copy>
  bool move(const Copy& copy, CUstream stream, bool to_host) {
    std::vector<std::byte> raw(values_.size() * static_cast<size_t>(bytes_));
    const auto element = [&](size_t i) { return raw.data() + i * static_cast<size_t>(bytes_); };
    if (!to_host)
      for (size_t i = 0; i < values_.size(); ++i) encode(values_[i], layout_.type, element(i));
    for (uint64_t column = 0; column < layout_.columns; ++column) {
      const CUdeviceptr device =
          begin_ + column * static_cast<CUdeviceptr>(layout_.leading * bytes_);
      if (!copy(device, element(column * layout_.rows), layout_.rows * static_cast<size_t>(bytes_)))
        return false;
    }
    if (cuStreamSynchronize(stream) != CUDA_SUCCESS) return false;
    if (to_host)
      for (size_t i = 0; i < values_.size(); ++i) values_[i] = decoded(element(i), layout_.type);
    return true;
  }

  FakeLayout layout_;
  int64_t bytes_;
  CUdeviceptr begin_;
  std::vector<float> values_;
};

constexpr double kGeluSlope = 0.7978845608028654, kGeluCubic = 0.044715;

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kGeluSlope * (x + kGeluCubic * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(kGeluSlope * (x + kGeluCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluSlope * (1 + 3 * kGeluCubic * x * x);
}

struct Operands {
  CUdeviceptr a, b, c, d;
  float alpha, beta;
  uint64_t algorithm;
};

bool multiply(const FakeDescription& d, const FakeLayout& la, const FakeLayout& lb,
              const FakeLayout& lc, const Operands& operands, int32_t batch, CUstream stream) {
  HostMatrix a(operands.a, la, batch), b(operands.b, lb, batch), c(operands.c, lc, batch),
      result(operands.d, lc, batch);
  FakeLayout auxiliary_layout = lc, bias_layout = lc;
  auxiliary_layout.leading = d.auxiliary_leading, auxiliary_layout.stride = d.auxiliary_stride;
  bias_layout.columns = 1, bias_layout.stride = 0;
  HostMatrix auxiliary(d.auxiliary, auxiliary_layout, batch), bias(d.bias, bias_layout, 0);
  const FakeLayout scalar{.type = CUDA_R_32F, .rows = 1, .columns = 1, .leading = 1};
  HostMatrix a_scale(d.a_scale, scalar, 0), b_scale(d.b_scale, scalar, 0);
  const bool gradient = (d.epilogue & 64) != 0, activates = (d.epilogue & 32) != 0;
  bool ok = a.read(stream) && b.read(stream);
  if (operands.beta != 0) ok = ok && c.read(stream);
  if (has_bias(d.epilogue)) ok = ok && bias.read(stream);
  if (gradient) ok = ok && auxiliary.read(stream);
  double alpha = operands.alpha;
  if (is_fp8(la.type)) {
    ok = ok && a_scale.read(stream) && b_scale.read(stream);
    alpha *= static_cast<double>(a_scale.at(0, 0)) * b_scale.at(0, 0);
  }
  if (!ok) return false;
  const uint64_t depth = operand_size(la, d.transpose_a).second;
  for (uint64_t column = 0; column < lc.columns; ++column) {
    for (uint64_t row = 0; row < lc.rows; ++row) {
      double sum = 0;
      for (uint64_t k = 0; k < depth; ++k)
        sum += static_cast<double>(a.of(d.transpose_a, row, k)) * b.of(d.transpose_b, k, column);
      if (operands.algorithm == kRoundsUp) sum *= 1 + 0x1p-18;
      sum *= g_fault == "product" ? 2 * alpha : alpha;
      if (operands.beta != 0) sum += static_cast<double>(operands.beta) * c.at(row, column);
      if (has_bias(d.epilogue)) sum += bias.at(g_fault == "bias" ? 0 : row, 0);
      if (activates && uses_auxiliary(d.epilogue))
        auxiliary.at(row, column) = static_cast<float>(sum);
      if (activates) sum = gelu(sum);
      if (gradient) sum *= gelu_slope(auxiliary.at(row, column));
      result.at(row, column) = static_cast<float>(sum);
    }
  }
  if (activates && uses_auxiliary(d.epilogue)) ok = auxiliary.write(stream);
  return ok && result.write(stream);
}

// The part of a product that determines which kernel the library loads.
auto key(const FakeLayout& l) {
  return std::tuple(l.type, l.rows, l.columns, l.leading, l.batches, l.stride);
}
auto key(const FakeDescription& d) { return std::tuple(d.transpose_a, d.transpose_b, d.epilogue); }
using LayoutKey = decltype(key(FakeLayout{}));
using Loaded = std::tuple<cublasLtHandle_t, uint64_t, decltype(key(FakeDescription{})), bool,
                          LayoutKey, LayoutKey, LayoutKey>;

bool is_aligned(const FakeDescription& d, const Operands& operands) {
  CUdeviceptr all = operands.a | operands.b | operands.c | operands.d;
  if (has_bias(d.epilogue)) all |= d.bias;
  if (uses_auxiliary(d.epilogue)) all |= d.auxiliary;
  return all % 16 == 0;
}

cublasStatus_t refuse() {
  ++g_counts.refused;
  return CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

extern "C" {

FakeCublasLtCounts fake_cublaslt_counts() { return std::exchange(g_counts, {}); }
void fake_cublaslt_set(const FakeCublasLtBehaviour* behaviour) { g_behaviour = *behaviour; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const tessera::virtual_gpu::DevicePtr& device = tessera::virtual_gpu::current_device;
  if (g_behaviour.no_handle || device == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  return create(handle, device->ordinal);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle); }
size_t cublasLtGetVersion() {
  const char* const version = std::getenv("TESSERA_FAKE_CUBLASLT_VERSION");
  return static_cast<size_t>(version == nullptr ? g_behaviour.version : std::atoll(version));
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
                                                 : "CUBLAS_STATUS_INVALID_VALUE";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return refuse();
  return create(description, FakeDescription());
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy<FakeDescription>(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  FakeDescription& d = *as_description(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(d.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(d.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return assign(d.a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return assign(d.b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(d.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(d.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(d.auxiliary, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(d.auxiliary_leading, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return assign(d.auxiliary_stride, value, bytes);
    default:
      return refuse();
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return create(layout,
                FakeLayout{.type = type, .rows = rows, .columns = columns, .leading = leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<FakeLayout>(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  FakeLayout& l = *as_layout(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return assign(l.batches, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    return assign(l.stride, value, bytes);
  return refuse();
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, FakePreference());
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<FakePreference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  auto& p = *reinterpret_cast<FakePreference*>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return assign(p.workspace, value, bytes);
  return assign(p.other[attribute], value, bytes);
}

// Returns three algorithms. The second needs too much workspace; the third is refused when it runs.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  ++g_counts.heuristics;
  *found = 0;
  const auto& p = *reinterpret_cast<FakePreference*>(preference);
  const uint32_t epilogue = as_description(description)->epilogue;
  if (most < 1 || c != d || p.other.size() != 5 ||
      !is_valid(*as_description(description), *as_layout(a), *as_layout(b), *as_layout(c)))
    return refuse();
  if (g_behaviour.no_epilogues && epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!is_supported(*as_description(description), *as_layout(a), *as_layout(b), *as_layout(c)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (uint64_t i = 0; i < 3 && static_cast<int>(i) < most; ++i) {
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    result.workspaceSize = i == 1 ? p.workspace + 1 : p.workspace;
    result.algo.data[0] = kMagic, result.algo.data[1] = i == 0 && g_offered == "3" ? kRoundsUp : i;
    result.algo.data[2] = result.workspaceSize;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (g_behaviour.no_old_algorithms || algorithm->data[0] != kMagic)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->workspaceSize = algorithm->data[2];
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                              cudaStream_t stream) {
  const FakeDescription& description_of = *as_description(description);
  const FakeLayout &la = *as_layout(a_layout), &lb = *as_layout(b_layout),
                   &lc = *as_layout(c_layout);
  const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  const Operands operands = {address(a),
                             address(b),
                             address(c),
                             address(d),
                             *static_cast<const float*>(alpha),
                             *static_cast<const float*>(beta),
                             algorithm->data[1]};
  static std::set<Loaded> loaded;
  const Loaded kernel(handle, algorithm->data[1], key(description_of), operands.beta != 0, key(la),
                      key(lb), key(lc));
  ++(loaded.insert(kernel).second ? g_counts.loads : g_counts.products);
  // A handle belongs to the GPU that was current at its creation.
  const tessera::virtual_gpu::DevicePtr& device = tessera::virtual_gpu::current_device;
  if (device == nullptr || device->ordinal != *reinterpret_cast<const int*>(handle))
    return refuse();
  if (c_layout != d_layout || algorithm->data[0] != kMagic || algorithm->data[2] > bytes ||
      address(workspace) % 256 != 0 || !is_valid(description_of, la, lb, lc) ||
      !is_supported(description_of, la, lb, lc) || !is_aligned(description_of, operands))
    return refuse();
  if (algorithm->data[1] == kRefusedWhenRun) return CUBLAS_STATUS_INVALID_VALUE;
  // The product may overwrite the whole workspace.
  if (cuMemsetD8Async(address(workspace), 0xff, bytes, stream) != CUDA_SUCCESS) return refuse();
  for (int32_t batch = 0; batch < lc.batches; ++batch)
    if (!multiply(description_of, la, lb, lc, operands, batch, stream)) return refuse();
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
