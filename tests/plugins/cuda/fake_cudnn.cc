// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/cuda/fake_cudnn.h"

#include <cuda.h>
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/virtual_gpu/device_state.h"

namespace vgpu = tessera::virtual_gpu;

struct cudnnContext {
  vgpu::DevicePtr device = vgpu::current_device;
  CUstream stream = nullptr;
};

namespace {

FakeCudnnCounts g_counts;
FakeCudnnBehaviour g_behaviour;

constexpr int64_t kWorkspace = 1000;

// The object behind the library's opaque pointers.
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  struct Attribute {
    cudnnBackendAttributeType_t type;
    std::vector<std::byte> bytes;
  };
  std::map<int, Attribute> attributes;

  bool has(int name) const { return attributes.count(name) != 0; }
  template <typename T>
  std::vector<T> all(int name) const {
    const std::vector<std::byte>& bytes = attributes.at(name).bytes;
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <typename T>
  T one(int name) const {
    T value;
    std::memcpy(&value, attributes.at(name).bytes.data(), sizeof(value));
    return value;
  }
  const Descriptor& part(int name) const { return *one<const Descriptor*>(name); }
};

size_t attribute_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
      return sizeof(int);
    default:
      return 8;
  }
}

using Index = std::array<int64_t, 4>;

struct Shape {
  int64_t id;
  cudnnDataType_t type;
  Index sizes, strides;
  bool is_virtual, is_value;
};

Shape shape_of(const Descriptor& tensor) {
  Shape shape = {tensor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                 tensor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
                 {},
                 {},
                 tensor.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                 tensor.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
  const auto sizes = tensor.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = tensor.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  std::copy_n(sizes.begin(), 4, shape.sizes.begin());
  std::copy_n(strides.begin(), 4, shape.strides.begin());
  return shape;
}

template <typename Visit>
void for_each(const Index& sizes, const Visit& visit) {
  Index i;
  for (i[0] = 0; i[0] < sizes[0]; ++i[0])
    for (i[1] = 0; i[1] < sizes[1]; ++i[1])
      for (i[2] = 0; i[2] < sizes[2]; ++i[2])
        for (i[3] = 0; i[3] < sizes[3]; ++i[3]) visit(i);
}

// Whether sizes are compatible: 1 is broadcast, and a divisor is a number of groups.
bool divides(const Index& small, const Index& large, size_t axes = 4) {
  for (size_t axis = 0; axis < axes; ++axis)
    if (small[axis] <= 0 || large[axis] % small[axis] != 0) return false;
  return true;
}

double rounded(double value, cudnnDataType_t type) {
  if (type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN) return value;
  const auto single = static_cast<float>(value);
  if (type == CUDNN_DATA_FLOAT || !std::isfinite(single)) return single;
  uint32_t bits = std::bit_cast<uint32_t>(single);
  bits += 0x7fff + (bits >> 16 & 1);  // Round to nearest, ties to even.
  return std::bit_cast<float>(bits & 0xffff0000u);
}

// The memory of a tensor.
struct Memory {
  Shape shape;
  std::vector<double> values;
  bool written = false;

  explicit Memory(const Shape& of) : shape(of) {
    int64_t extent = 1;
    for (size_t axis = 0; axis < 4; ++axis) extent += (shape.sizes[axis] - 1) * shape.strides[axis];
    values.assign(static_cast<size_t>(extent), std::numeric_limits<double>::quiet_NaN());
  }
  // Returns the element at `index` of a tensor of `sizes`.
  double& at(const Index& index, const Index& sizes) {
    int64_t position = 0;
    for (size_t axis = 0; axis < 4; ++axis)
      position += index[axis] * shape.sizes[axis] / sizes[axis] * shape.strides[axis];
    return values[static_cast<size_t>(position)];
  }
  double& at(const Index& index) { return at(index, shape.sizes); }
  void store(const Index& index, double value) { at(index) = rounded(value, shape.type); }
};

double pointwise(cudnnPointwiseMode_t mode, double x, double y, double condition) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + y;
    case CUDNN_POINTWISE_SUB:
      return x - y;
    case CUDNN_POINTWISE_MUL:
      return x * y;
    case CUDNN_POINTWISE_DIV:
      return x / y;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_TANH_FWD:
      return std::tanh(x);
    case CUDNN_POINTWISE_IDENTITY:
      return x;
    case CUDNN_POINTWISE_CMP_GE:
      return x >= y;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return condition != 0 ? x : y;
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

// Returns the attributes that hold an operation's tensors, the result last.
const std::vector<int>& tensor_names(cudnnBackendDescriptorType_t type) {
  static const std::map<int, std::vector<int>> names = {
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC}},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
        CUDNN_ATTR_OPERATION_MATMUL_CDESC}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC}}};
  return names.at(type);
}

bool is_valid_tensor(const Descriptor& d) {
  for (const int name :
       {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS,
        CUDNN_ATTR_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_ATTR_TENSOR_IS_VIRTUAL,
        CUDNN_ATTR_TENSOR_IS_BY_VALUE})
    if (!d.has(name)) return false;
  return d.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).size() == 4 &&
         d.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES).size() == 4;
}

bool is_valid_operation(const Descriptor& d) {
  std::vector<Shape> shapes;
  for (const int name : tensor_names(d.type)) {
    if (!d.has(name)) continue;
    if (!d.part(name).finalized) return false;
    shapes.push_back(shape_of(d.part(name)));
  }
  const Shape &first = shapes.at(0), &result = shapes.back();
  if (result.is_value || first.is_value) return false;
  if (d.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    const Index &a = first.sizes, &b = shapes.at(1).sizes, &c = result.sizes;
    return a[0] == c[0] && a[1] == c[1] && divides(b, c, 2) && a[2] == c[2] && a[3] == b[2] &&
           b[3] == c[3];
  }
  if (d.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
    return divides(result.sizes, first.sizes);
  if (d.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
    return Memory(first).values.size() == Memory(result).values.size();
  // In the library, a first operand in memory requires a second one in memory.
  if (!first.is_virtual && shapes.size() == 3 && shapes[1].is_virtual) return false;
  for (size_t i = 0; i + 1 < shapes.size(); ++i)
    if (!divides(shapes[i].sizes, result.sizes)) return false;
  return true;
}

// Whether every tensor has a unique id and an address.
bool is_valid_pack(const Descriptor& d) {
  for (const int name : {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                         CUDNN_ATTR_VARIANT_PACK_WORKSPACE})
    if (!d.has(name)) return false;
  const auto ids = d.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  return std::set(ids.begin(), ids.end()).size() == ids.size() &&
         d.all<uint64_t>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size() == ids.size();
}

// The tensors of one execution, by id.
class Execution {
 public:
  Execution(const Descriptor& pack, CUstream stream) : stream_(stream) {
    const auto ids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto addresses = pack.all<uint64_t>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < ids.size(); ++i) addresses_[ids[i]] = addresses.at(i);
  }

  bool run(const Descriptor& operation) {
    std::vector<Memory*> tensors;
    const std::vector<int>& names = tensor_names(operation.type);
    for (const int name : names)
      tensors.push_back(operation.has(name) ? tensor(operation.part(name), name == names.back())
                                            : nullptr);
    if (tensors.front() == nullptr || tensors.back() == nullptr) return false;
    Memory& result = *tensors.back();
    if (operation.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      run_pointwise(operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), tensors, result);
    else if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      run_product(*tensors[0], *tensors[1], result);
    else if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      run_reduction(operation.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC), *tensors[0], result);
    else
      for (size_t i = 0; i < result.values.size(); ++i)
        result.values[i] = rounded(tensors[0]->values[i], result.shape.type);
    result.written = true;
    return result.shape.is_virtual || transfer(result, true);
  }
  bool used_all() const { return used_.size() == addresses_.size(); }

 private:
  // Returns null if the tensor is neither given nor computed, or is computed twice.
  Memory* tensor(const Descriptor& descriptor, bool is_result) {
    const Shape shape = shape_of(descriptor);
    const auto [each, is_new] = memories_.try_emplace(shape.id, shape);
    Memory& memory = each->second;
    if (is_result) return memory.written ? nullptr : &memory;
    if (memory.written) return &memory;
    if (shape.is_virtual || !is_new || !transfer(memory, false)) return nullptr;
    memory.written = true;
    return &memory;
  }

  bool transfer(Memory& memory, bool to_device) {
    const auto found = addresses_.find(memory.shape.id);
    if (found == addresses_.end()) return false;
    used_.insert(memory.shape.id);
    if (memory.shape.is_value) {
      memory.values[0] = *reinterpret_cast<const float*>(found->second);
      return true;
    }
    if (found->second % 16 != 0) return false;
    const bool is_bf16 = memory.shape.type == CUDNN_DATA_BFLOAT16;
    std::vector<uint32_t> words(memory.values.size());
    std::vector<uint16_t> halves(is_bf16 ? words.size() : 0);
    void* const host = is_bf16 ? static_cast<void*>(halves.data()) : words.data();
    const size_t bytes = words.size() * (is_bf16 ? 2 : 4);
    if (to_device) {
      for (size_t i = 0; i < words.size(); ++i)
        words[i] = std::bit_cast<uint32_t>(static_cast<float>(memory.values[i]));
      for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(words[i] >> 16);
      return cuMemcpyHtoDAsync(found->second, host, bytes, stream_) == CUDA_SUCCESS &&
             cuStreamSynchronize(stream_) == CUDA_SUCCESS;
    }
    if (cuMemcpyDtoHAsync(host, found->second, bytes, stream_) != CUDA_SUCCESS ||
        cuStreamSynchronize(stream_) != CUDA_SUCCESS)
      return false;
    for (size_t i = 0; i < halves.size(); ++i) words[i] = static_cast<uint32_t>(halves[i]) << 16;
    for (size_t i = 0; i < words.size(); ++i)
      memory.values[i] = static_cast<double>(std::bit_cast<float>(words[i]));
    return true;
  }

  static void run_pointwise(const Descriptor& kind, const std::vector<Memory*>& tensors,
                            Memory& result) {
    const auto mode = kind.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    for_each(result.shape.sizes, [&](const Index& index) {
      if (mode == CUDNN_POINTWISE_GEN_INDEX) {
        const auto axis = static_cast<size_t>(kind.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
        return result.store(index, static_cast<double>(index[axis]));
      }
      const auto value = [&](size_t i) {
        return tensors[i] == nullptr ? 0.0 : tensors[i]->at(index, result.shape.sizes);
      };
      result.store(index, pointwise(mode, value(0), value(1), value(2)));
    });
  }
  static void run_product(Memory& a, Memory& b, Memory& result) {
    for_each(result.shape.sizes, [&](Index index) {
      const Index& sizes = result.shape.sizes;
      double sum = 0;
      for (int64_t k = 0; k < a.shape.sizes[3]; ++k) {
        const Index in_a = {index[0], index[1], index[2], k};
        const Index in_b = {index[0] * b.shape.sizes[0] / sizes[0],
                            index[1] * b.shape.sizes[1] / sizes[1], k, index[3]};
        sum += a.at(in_a) * b.at(in_b);
      }
      result.store(index, sum);
    });
  }
  static void run_reduction(const Descriptor& kind, Memory& x, Memory& result) {
    const bool adds =
        kind.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD;
    std::fill(result.values.begin(), result.values.end(),
              adds ? 0.0 : -std::numeric_limits<double>::infinity());
    for_each(x.shape.sizes, [&](const Index& index) {
      double& total = result.at(index, x.shape.sizes);
      total = adds ? total + x.at(index) : std::max(total, x.at(index));
    });
    for (double& value : result.values) value = rounded(value, result.shape.type);
  }

  CUstream stream_;
  std::map<int64_t, uint64_t> addresses_;
  std::map<int64_t, Memory> memories_;
  std::set<int64_t> used_;
};

cudnnStatus_t refuse() {
  ++g_counts.refused;
  return CUDNN_STATUS_BAD_PARAM;
}

Descriptor& as_descriptor(cudnnBackendDescriptor_t descriptor) {
  return *static_cast<Descriptor*>(descriptor);
}

}  // namespace

extern "C" {

FakeCudnnCounts fake_cudnn_counts() { return std::exchange(g_counts, {}); }
void fake_cudnn_set(const FakeCudnnBehaviour* behaviour) { g_behaviour = *behaviour; }

size_t cudnnGetVersion() { return static_cast<size_t>(g_behaviour.version); }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_INITIALIZED ? "CUDNN_STATUS_NOT_INITIALIZED"
                                                : "CUDNN_STATUS_BAD_PARAM";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (g_behaviour.no_handle || vgpu::current_device == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const CUresult result = vgpu::call([&](const vgpu::Call& c) {
    if (c.s.streams.at(stream)->device != handle->device)
      throw vgpu::Refusal{CUDA_ERROR_INVALID_HANDLE, "cuDNN's handle is of another GPU"};
  });
  if (result != CUDA_SUCCESS) return CUDNN_STATUS_MAPPING_ERROR;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{.type = type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  Descriptor& d = as_descriptor(descriptor);
  if (d.finalized || count < 1 || values == nullptr) return refuse();
  const auto* const bytes = static_cast<const std::byte*>(values);
  const size_t size = static_cast<size_t>(count) * attribute_bytes(type);
  d.attributes[name] = {type, std::vector<std::byte>(bytes, bytes + size)};
  return CUDNN_STATUS_SUCCESS;
}
// Supports the configuration of a heuristic, the engine of a configuration, the notes of an engine
// and the workspace of a plan.
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t* count,
                                       void* values) {
  Descriptor& d = as_descriptor(descriptor);
  if (!d.finalized) return refuse();
  *count = 1;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    std::memcpy(values, &kWorkspace, sizeof(kWorkspace));
  } else if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *count = g_behaviour.no_plans ? 0 : 1;
    if (most == 0 || *count == 0) return CUDNN_STATUS_SUCCESS;
    Descriptor& configuration = **static_cast<Descriptor**>(values);
    configuration.attributes = d.attributes;
    configuration.finalized = true;
  } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    (*static_cast<Descriptor**>(values))->finalized = true;
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    *count = g_behaviour.nondeterministic ? 2 : 1;
    constexpr cudnnBackendNumericalNote_t kNotes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                      CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    std::copy_n(kNotes, *count, static_cast<cudnnBackendNumericalNote_t*>(values));
  } else {
    return refuse();
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& d = as_descriptor(descriptor);
  bool is_valid = !d.finalized;
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      is_valid = is_valid && is_valid_tensor(d);
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      is_valid = is_valid && is_valid_operation(d);
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      is_valid = is_valid && d.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) &&
                 d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).finalized;
      ++g_counts.plans;
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      is_valid = is_valid && is_valid_pack(d);
      break;
    default:
      break;
  }
  if (!is_valid) return refuse();
  d.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  ++g_counts.runs;
  const Descriptor &p = as_descriptor(plan), &v = as_descriptor(pack);
  if (!p.finalized || !v.finalized) return refuse();
  const auto owner = p.one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  if (owner->device != handle->device || vgpu::current_device != handle->device) return refuse();
  const auto workspace = v.one<CUdeviceptr>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (workspace % 256 != 0 ||
      cuMemsetD8Async(workspace, 0xff, kWorkspace, handle->stream) != CUDA_SUCCESS)
    return refuse();
  const Descriptor& graph =
      p.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  Execution execution(v, handle->stream);
  const auto operations = graph.all<const Descriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  for (const Descriptor* operation : operations) {
    if (g_behaviour.wrong_results && operation == operations.back()) return CUDNN_STATUS_SUCCESS;
    if (!execution.run(*operation)) return refuse();
  }
  if (g_behaviour.is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return execution.used_all() ? CUDNN_STATUS_SUCCESS : refuse();
}

}  // extern "C"
