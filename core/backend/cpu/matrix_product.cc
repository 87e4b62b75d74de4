// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/matrix_product.h"

#include <dlfcn.h>

#include <array>
#include <vector>

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>

#include "core/backend/cpu/features.h"
#include "core/backend/cpu/few_rows_product.h"
#include "core/backend/cpu/reduce_rows.h"
#include "core/base/error.h"

namespace tessera {
namespace {

// oneDNN may be built with OpenMP, which would start threads of its own in each of ours. While one
// of these lives, calls from this thread stay on it.
class OneThread {
 public:
  OneThread() {
    if (functions().set == nullptr) return;
    before_ = functions().get();
    if (before_ != 1) functions().set(1);
  }
  ~OneThread() {
    if (before_ > 1) functions().set(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  struct Functions {
    int (*get)() = nullptr;
    void (*set)(int) = nullptr;
  };
  static const Functions& functions() {
    static const Functions found = [] {
      Functions f;
      f.get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
      f.set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
      if (f.get == nullptr) f.set = nullptr;
      return f;
    }();
    return found;
  }
  int before_ = 1;
};

blasint blas_size(int64_t size) {
  CHECK(size < (int64_t{1} << 31), "matrix dimension {} is too large for BLAS", size);
  return static_cast<blasint>(size);
}

void sgemm(const ProductShape& shape, const float* a, MatrixLayout a_layout, const float* b,
           MatrixLayout b_layout, float* c, int64_t c_leading) {
  cblas_sgemm(CblasRowMajor, a_layout.transposed ? CblasTrans : CblasNoTrans,
              b_layout.transposed ? CblasTrans : CblasNoTrans, blas_size(shape.m),
              blas_size(shape.n), blas_size(shape.k), 1.0f, a, blas_size(a_layout.leading), b,
              blas_size(b_layout.leading), 0.0f, c, blas_size(c_leading));
}

// Debian's alternatives may give us a threaded OpenBLAS under the serial one's name.
void keep_blas_serial() {
  static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

class OpenBlasProduct final : public MatrixProduct {
 public:
  explicit OpenBlasProduct(const ProductShape& shape) : shape_(shape) {
    CHECK(shape.input == DType::kF32 && shape.output == DType::kF32);
    keep_blas_serial();
  }
  int64_t scratch_bytes() const override { return 0; }
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte*) override {
    sgemm(shape_, reinterpret_cast<const float*>(a), shape_.a, reinterpret_cast<const float*>(b),
          shape_.b, reinterpret_cast<float*>(c), shape_.c_leading);
  }

 private:
  ProductShape shape_;
};

// Copies of A, B and, if its result is bf16, C, in f32.
class WidenedProduct final : public MatrixProduct {
 public:
  explicit WidenedProduct(const ProductShape& shape) : shape_(shape) {
    CHECK(shape.input == DType::kBF16);
    keep_blas_serial();
  }
  int64_t scratch_bytes() const override {
    return (shape_.m * shape_.k + shape_.k * shape_.n + shape_.m * shape_.n) * 4;
  }
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) override {
    float* const wide_a = reinterpret_cast<float*>(scratch);
    float* const wide_b = wide_a + shape_.m * shape_.k;
    float* const wide_c = wide_b + shape_.k * shape_.n;
    const MatrixLayout a_layout = widen(a, shape_.a, shape_.m, shape_.k, wide_a);
    const MatrixLayout b_layout = widen(b, shape_.b, shape_.k, shape_.n, wide_b);
    if (shape_.output == DType::kF32) {
      sgemm(shape_, wide_a, a_layout, wide_b, b_layout, reinterpret_cast<float*>(c),
            shape_.c_leading);
      return;
    }
    sgemm(shape_, wide_a, a_layout, wide_b, b_layout, wide_c, shape_.n);
    for (int64_t row = 0; row < shape_.m; ++row) {
      store_sums(DType::kBF16, wide_c + row * shape_.n, shape_.n, c + row * shape_.c_leading * 2);
    }
  }

 private:
  static MatrixLayout widen(const std::byte* from, MatrixLayout layout, int64_t rows,
                            int64_t columns, float* to) {
    if (layout.transposed) std::swap(rows, columns);
    for (int64_t row = 0; row < rows; ++row) {
      widen_row(from + row * layout.leading * 2, columns, to + row * columns);
    }
    return {columns, layout.transposed};
  }

  ProductShape shape_;
};

void check(dnnl_status_t status, const ProductShape& shape) {
  if (status == dnnl_success) return;
  fail("oneDNN refuses the matrix product m={} n={} k={} ({}): status {}", shape.m, shape.n,
       shape.k, dtype_name(shape.input), static_cast<int>(status));
}

dnnl_engine_t onednn_engine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t created = nullptr;
    CHECK(dnnl_engine_create(&created, dnnl_cpu, 0) == dnnl_success);
    return created;  // Lives as long as the process: kernels may be destroyed late.
  }();
  return engine;
}

class OneDnnProduct final : public MatrixProduct {
 public:
  explicit OneDnnProduct(const ProductShape& shape) {
    const OneThread guard;
    const dnnl_engine_t engine = onednn_engine();
    dnnl_memory_desc_t a, b, c;
    describe(a, shape.m, shape.k, shape.a, shape.input, shape);
    describe(b, shape.k, shape.n, shape.b, shape.input, shape);
    describe(c, shape.m, shape.n, {shape.c_leading, false}, shape.output, shape);
    dnnl_matmul_desc_t operation;
    check(dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &c), shape);
    dnnl_primitive_attr_t attributes = nullptr;
    check(dnnl_primitive_attr_create(&attributes), shape);
    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    dnnl_primitive_desc_t descriptor = nullptr;
    const dnnl_status_t status =
        dnnl_primitive_desc_create(&descriptor, &operation, attributes, engine, nullptr);
    dnnl_primitive_attr_destroy(attributes);
    check(status, shape);
    const dnnl_memory_desc_t* scratchpad =
        dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    scratch_bytes_ = static_cast<int64_t>(dnnl_memory_desc_get_size(scratchpad));
    const std::array<const dnnl_memory_desc_t*, 4> descriptions = {&a, &b, &c, scratchpad};
    constexpr std::array<int, 4> kNames = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                           DNNL_ARG_SCRATCHPAD};
    for (size_t i = 0; i < 4; ++i) {
      args_[i].arg = kNames[i];
      check(dnnl_memory_create(&args_[i].memory, descriptions[i], engine, DNNL_MEMORY_NONE), shape);
    }
    const dnnl_status_t created = dnnl_primitive_create(&primitive_, descriptor);
    dnnl_primitive_desc_destroy(descriptor);
    check(created, shape);
    check(dnnl_stream_create(&stream_, engine, dnnl_stream_default_flags), shape);
  }
  ~OneDnnProduct() override {
    if (stream_ != nullptr) dnnl_stream_destroy(stream_);
    if (primitive_ != nullptr) dnnl_primitive_destroy(primitive_);
    for (const dnnl_exec_arg_t& arg : args_) {
      if (arg.memory != nullptr) dnnl_memory_destroy(arg.memory);
    }
  }
  OneDnnProduct(const OneDnnProduct&) = delete;
  OneDnnProduct& operator=(const OneDnnProduct&) = delete;

  int64_t scratch_bytes() const override { return scratch_bytes_; }

  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) override {
    const OneThread guard;
    const std::array<const std::byte*, 4> data = {a, b, c, scratch};
    for (size_t i = 0; i < 4; ++i) {
      dnnl_memory_set_data_handle(args_[i].memory, const_cast<std::byte*>(data[i]));
    }
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_, stream_, static_cast<int>(args_.size()), args_.data());
    CHECK(status == dnnl_success, "oneDNN failed: status {}", static_cast<int>(status));
  }

 private:
  static void describe(dnnl_memory_desc_t& description, int64_t rows, int64_t columns,
                       MatrixLayout layout, DType dtype, const ProductShape& shape) {
    const dnnl_dims_t sizes = {rows, columns};
    const dnnl_dims_t strides = {layout.transposed ? 1 : layout.leading,
                                 layout.transposed ? layout.leading : 1};
    check(dnnl_memory_desc_init_by_strides(&description, 2, sizes,
                                           dtype == DType::kF32 ? dnnl_f32 : dnnl_bf16, strides),
          shape);
  }

  dnnl_primitive_t primitive_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  std::array<dnnl_exec_arg_t, 4> args_ = {};
  int64_t scratch_bytes_ = 0;
};

class ProductOfFewRows final : public MatrixProduct {
 public:
  explicit ProductOfFewRows(const ProductShape& shape) : shape_(shape) {
    CHECK(shape.m <= kFewRows && !shape.a.transposed);
  }
  int64_t scratch_bytes() const override { return few_rows_scratch_floats(shape_) * 4; }
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) override {
    few_rows_product(shape_, a, b, c, reinterpret_cast<float*>(scratch));
  }

 private:
  ProductShape shape_;
};

}  // namespace

std::string_view library_name(ProductLibrary library) {
  switch (library) {
    case ProductLibrary::kOpenBlas:
      return "OpenBLAS";
    case ProductLibrary::kOpenBlasWidened:
      return "OpenBLAS on widened copies";
    case ProductLibrary::kOneDnn:
      return "oneDNN";
    case ProductLibrary::kFewRows:
      return "loops for few rows";
  }
  return "";
}

ProductLibrary best_library(DType input) {
  const CpuLevel level = cpu_level();
  if (input == DType::kBF16) {
    return level >= CpuLevel::kAvx512Bf16 ? ProductLibrary::kOneDnn
                                          : ProductLibrary::kOpenBlasWidened;
  }
  return level >= CpuLevel::kAvx512 ? ProductLibrary::kOneDnn : ProductLibrary::kOpenBlas;
}

ProductLibrary best_library(const ProductShape& shape) {
  const bool few = shape.m <= kFewRows && !shape.a.transposed;
  return few ? ProductLibrary::kFewRows : best_library(shape.input);
}

std::unique_ptr<MatrixProduct> make_matrix_product(const ProductShape& shape,
                                                   ProductLibrary library) {
  switch (library) {
    case ProductLibrary::kOpenBlas:
      return std::make_unique<OpenBlasProduct>(shape);
    case ProductLibrary::kOpenBlasWidened:
      return std::make_unique<WidenedProduct>(shape);
    case ProductLibrary::kOneDnn:
      return std::make_unique<OneDnnProduct>(shape);
    case ProductLibrary::kFewRows:
      return std::make_unique<ProductOfFewRows>(shape);
  }
  return nullptr;
}

}  // namespace tessera
