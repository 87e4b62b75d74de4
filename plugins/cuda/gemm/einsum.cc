// SPDX-License-Identifier: Apache-2.0
// The kernel of einsum and fp8_product, alone or with an epilogue: batches of products; operands
// whose axes form no matrix in memory are packed first, as on the CPU
// (core/devices/contraction.h).
#include "core/ops/einsum.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/devices/contraction.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/gemm/fp8_product.h"
#include "plugins/cuda/gemm/make_product.h"

namespace tessera::cuda {
namespace {

int64_t aligned_scratch(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// A copy of an operand into the order of a matrix, or of the result from it.
class Packer {
 public:
  Packer(Context& context, const Packing& packing, DType dtype)
      : context_(&context),
        function_(
            context.function("product", dtype_bytes(dtype) == 2 ? "pack_2_bytes" : "pack_4_bytes")),
        shape_(elementwise_shape(context, packing.elements)) {
    const IterationSpace& space = packing.space;
    CHECK(space.sizes.size() <= PackParameters::kDimensions, "{} dimensions", space.sizes.size());
    p_.elements = packing.elements;
    p_.dimensions = static_cast<int32_t>(space.sizes.size());
    std::copy(space.sizes.begin(), space.sizes.end(), p_.sizes);
    std::copy(space.operands[0].begin(), space.operands[0].end(), p_.from_strides);
    std::copy(space.operands[1].begin(), space.operands[1].end(), p_.to_strides);
  }

  void enqueue(CUstream stream, CUdeviceptr from, CUdeviceptr to) const {
    PackParameters p = p_;
    p.from = reinterpret_cast<const void*>(from);
    p.to = reinterpret_cast<void*>(to);
    launch(*context_, stream, function_, shape_, p);
  }

 private:
  Context* context_;
  Function function_;
  LaunchShape shape_;
  PackParameters p_ = {};
};

using Offsets = std::array<int64_t, 3>;  // Offsets of A, B and C.

// The batch dimension that is one product's batch, as it has the most elements; nullopt: no batch.
std::optional<size_t> inner_dimension(const IterationSpace& batch) {
  if (batch.sizes.empty()) return std::nullopt;
  return static_cast<size_t>(std::max_element(batch.sizes.begin(), batch.sizes.end()) -
                             batch.sizes.begin());
}

// Where the products of all other batch dimensions begin.
std::vector<Offsets> outer_offsets(const IterationSpace& batch) {
  const std::optional<size_t> inner = inner_dimension(batch);
  std::vector<Offsets> offsets = {Offsets{}};
  for (size_t d = 0; d < batch.sizes.size(); ++d) {
    if (d == inner) continue;
    std::vector<Offsets> more;
    for (const Offsets& each : offsets) {
      for (int64_t i = 0; i < batch.sizes[d]; ++i) {
        Offsets next = each;
        for (size_t o = 0; o < 3; ++o) next[o] += i * batch.operands[o][d];
        more.push_back(next);
      }
    }
    offsets = std::move(more);
  }
  return offsets;
}

ProductShape product_shape(const Contraction& contraction, const Epilogue& epilogue) {
  ProductShape shape;
  shape.matrices = contraction.shape;
  shape.epilogue = epilogue;
  if (const auto inner = inner_dimension(contraction.batch)) {
    const auto stride = [&](size_t o) { return contraction.batch.operands[o][*inner]; };
    shape.batches = contraction.batch.sizes[*inner];
    shape.a_stride = stride(0), shape.b_stride = stride(1), shape.c_stride = stride(2);
  }
  return shape;
}

// A copy in the other direction.
Packing reversed(const Packing& packing) {
  Packing result = packing;
  std::swap(result.space.operands[0], result.space.operands[1]);
  return result;
}

// Rounding to 8 bits: the formats and largest elements of A and B.
struct Fp8Operands {
  Fp8Formats formats;
  size_t a_amax = 2, b_amax = 3;
};

// A product and its epilogue, with the numbers of the node's operands.
struct ProductNode {
  Contraction contraction;
  Epilogue epilogue;
  size_t a = 0, b = 1;
  std::optional<Fp8Operands> fp8;
  std::optional<size_t> bias, slopes, addend;
};

Float8 float8_of(const std::string& format) {
  return format == "e4m3" ? Float8::kE4M3 : Float8::kE5M2;
}

ProductNode read_product(const Graph& graph, const Node& node) {
  float_suffix(graph, node, node.inputs[0]);  // An Error for other dtypes.
  ProductNode product;
  product.contraction = make_contraction(graph, node);
  if (node.op == &kFp8ProductOp) {
    const auto& formats = node.attributes.get(key::kFormats);
    product.fp8 = Fp8Operands{{float8_of(formats[0]), float8_of(formats[1])}};
  }
  if (!product.contraction.swapped) return product;
  std::swap(product.a, product.b);
  if (product.fp8) {
    std::swap(product.fp8->formats.a, product.fp8->formats.b);
    std::swap(product.fp8->a_amax, product.fp8->b_amax);
  }
  return product;
}

Activation activation_of(const OpDef* op) {
  if (op == &kGeluTanhOp) return Activation::kGelu;
  if (op == &kSiluOp) return Activation::kSilu;
  if (op == &kGeluTanhGradOp) return Activation::kGeluGradient;
  CHECK(op == &kSiluGradOp, "{} after a product", op->name);
  return Activation::kSiluGradient;
}

// The body of a `fused_product` (core/compile/fuse/fuse.h).
ProductNode read_fused_product(const Node& node) {
  const Graph& body = *node.bodies[0];
  const auto number_of = [&](ValueId value) -> std::optional<size_t> {
    for (size_t i = 0; i < body.inputs().size(); ++i)
      if (body.inputs()[i].value == value) return i;
    return std::nullopt;
  };
  const Node& first = *body.nodes().begin();
  ProductNode product = read_product(body, first);
  const auto renumber = [&](size_t& operand) { operand = *number_of(first.inputs[operand]); };
  renumber(product.a), renumber(product.b);
  if (product.fp8) renumber(product.fp8->a_amax), renumber(product.fp8->b_amax);
  Epilogue& epilogue = product.epilogue;
  for (const Node& each : body.nodes()) {
    if (&each == &first) continue;
    if (each.op == &kCastOp) {
      product.contraction.shape.output = body.type(each.outputs[0]).dtype;
    } else if (each.op == &kAddOp) {
      const auto first = number_of(each.inputs[0]);
      const auto other = first ? first : number_of(each.inputs[1]);
      const bool like_result =
          body.type(body.inputs()[*other].value).axes == body.type(each.outputs[0]).axes;
      (like_result ? epilogue.adds : epilogue.bias) = true;
      (like_result ? product.addend : product.bias) = other;
    } else {
      epilogue.activation = activation_of(each.op);
      if (each.inputs.size() == 2) product.slopes = number_of(each.inputs[0]);
    }
  }
  epilogue.saves_operand = body.outputs().size() == 2;
  return product;
}

std::unique_ptr<Product> product_of(const ProductNode& node, Context& context) {
  const ProductShape shape = product_shape(node.contraction, node.epilogue);
  return node.fp8 ? make_fp8_product(context, shape, node.fp8->formats)
                  : make_product(context, shape);
}

class ProductKernel final : public CudaKernel {
 public:
  ProductKernel(const Graph& graph, const Node& node, Context& context)
      : ProductKernel(
            node.op == &kFusedProductOp ? read_fused_product(node) : read_product(graph, node),
            context) {}
  ProductKernel(const ProductNode& node, Context& context)
      : product_(product_of(node, context)),
        offsets_(outer_offsets(node.contraction.batch)),
        a_(node.a),
        b_(node.b),
        fp8_(node.fp8),
        bias_(node.bias),
        saves_(node.epilogue.saves_operand),
        input_bytes_(dtype_bytes(node.contraction.shape.input)),
        output_bytes_(dtype_bytes(node.contraction.shape.output)) {
    const Contraction& contraction = node.contraction;
    const DType input = contraction.shape.input, output = contraction.shape.output;
    pack_a_ = packed(context, contraction.pack_a, input);
    pack_b_ = packed(context, contraction.pack_b, input);
    unpack_c_ = packed(context, contraction.pack_c, output);
    // Other operands like C are brought into its order.
    std::optional<Packing> to_c;
    if (contraction.pack_c) to_c = reversed(*contraction.pack_c);
    if (node.slopes) slopes_ = {*node.slopes, packed(context, to_c, output)};
    if (node.addend) addend_ = {*node.addend, packed(context, to_c, output)};
    if (saves_) unpack_saved_ = packed(context, contraction.pack_c, output);
  }

  std::string_view implementation() const override { return product_->implementation(); }
  int64_t scratch_bytes() const override { return scratch_ + product_->scratch_bytes(); }

  // Each element of the addend is read before the same element of the result is written.
  bool may_overwrite(int64_t output, int64_t input) const override {
    const auto number = static_cast<size_t>(input);
    if (fp8_ && (number == fp8_->a_amax || number == fp8_->b_amax)) return false;
    return output == 0 && addend_ && addend_->input == number && number != a_ && number != b_ &&
           number != bias_;
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const auto bring = [&](const Packed& packed, size_t input) {
      return packed.enter(stream, args.inputs[input], args.scratch);
    };
    const DeviceAddress a = bring(pack_a_, a_), b = bring(pack_b_, b_);
    const DeviceAddress c = unpack_c_.place(args.outputs[0], args.scratch);
    DeviceAddress slopes, addend, saved;
    if (slopes_) slopes = bring(slopes_->packed, slopes_->input);
    if (addend_) addend = bring(addend_->packed, addend_->input);
    if (saves_) saved = unpack_saved_.place(args.outputs[1], args.scratch);
    const auto like_c = [&](DeviceAddress begin, const Offsets& offset) {
      return begin.is_null() ? 0 : pointer_of(begin + offset[2] * output_bytes_);
    };
    for (const Offsets& offset : offsets_)
      product_->enqueue(stream, {.a = pointer_of(a + offset[0] * input_bytes_),
                                 .b = pointer_of(b + offset[1] * input_bytes_),
                                 .c = like_c(c, offset),
                                 .bias = bias_ ? pointer_of(args.inputs[*bias_]) : 0,
                                 .slopes = like_c(slopes, offset),
                                 .addend = like_c(addend, offset),
                                 .saved = like_c(saved, offset),
                                 .scratch = pointer_of(args.scratch + scratch_),
                                 .a_amax = fp8_ ? pointer_of(args.inputs[fp8_->a_amax]) : 0,
                                 .b_amax = fp8_ ? pointer_of(args.inputs[fp8_->b_amax]) : 0});
    unpack_c_.leave(stream, args.outputs[0], args.scratch);
    if (saves_) unpack_saved_.leave(stream, args.outputs[1], args.scratch);
  }

 private:
  // An operand in place, or packed in the scratch.
  struct Packed {
    std::optional<Packer> packer;
    int64_t scratch = 0;

    DeviceAddress place(DeviceAddress operand, DeviceAddress all_scratch) const {
      return packer ? all_scratch + scratch : operand;
    }
    DeviceAddress enter(CUstream stream, DeviceAddress from, DeviceAddress all_scratch) const {
      const DeviceAddress to = place(from, all_scratch);
      if (packer) packer->enqueue(stream, pointer_of(from), pointer_of(to));
      return to;
    }
    void leave(CUstream stream, DeviceAddress to, DeviceAddress all_scratch) const {
      const DeviceAddress from = place(to, all_scratch);
      if (packer) packer->enqueue(stream, pointer_of(from), pointer_of(to));
    }
  };
  struct LikeResult {
    size_t input = 0;
    Packed packed;
  };

  Packed packed(Context& context, const std::optional<Packing>& packing, DType dtype) {
    Packed result{std::nullopt, scratch_};
    if (!packing) return result;
    result.packer.emplace(context, *packing, dtype);
    scratch_ += aligned_scratch(packing->elements * dtype_bytes(dtype));
    return result;
  }

  std::unique_ptr<Product> product_;
  std::vector<Offsets> offsets_;
  size_t a_, b_;
  std::optional<Fp8Operands> fp8_;
  std::optional<size_t> bias_;
  bool saves_;
  int64_t input_bytes_, output_bytes_;
  Packed pack_a_, pack_b_, unpack_c_, unpack_saved_;
  std::optional<LikeResult> slopes_, addend_;
  int64_t scratch_ = 0;
};

const KernelRegistrar kRegisterProducts{{&kEinsumOp, &kFusedProductOp}, make_kernel<ProductKernel>};
const KernelRegistrar kRegisterFp8Product{
    {&kFp8ProductOp}, make_kernel<ProductKernel>, kFp8Capability};

}  // namespace
}  // namespace tessera::cuda
