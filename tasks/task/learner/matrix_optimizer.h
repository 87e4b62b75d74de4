// SPDX-License-Identifier: Apache-2.0
// What optimizers share that update a weight's matrices as wholes: which weights have matrices, and
// where they are whole on a mesh. Other weights have another optimizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ops/matrices.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

// The matrices of a weight are those that its layer declares (matrix_axes): each layer of a stack,
// each expert, each part of a fused projection is one; `block_axes` divides further.
class MatrixOptimizer : public BaseOptimizer {
 public:
  const BaseOptimizer& for_parameter(const Parameter& parameter) const override;
  int64_t interval() const override { return other_ ? other_->interval() : 1; }
  bool reads_drawn_gradient() const override { return other_ && other_->reads_drawn_gradient(); }
  // By which the spectral norm of an update of matrices changes by √(out/in) relative to the base's
  // (muP).
  double width_factor(const Parameter& parameter) const override;

 protected:
  // Takes HParams with block_axes, excluded_axes and other_tpl too.
  template <typename HParams>
  MatrixOptimizer(const HParams& p, std::vector<Moment> moments)
      : BaseOptimizer(p, std::move(moments)),
        name_(class_name<HParams>()),
        block_axes_(p.block_axes),
        excluded_axes_(p.excluded_axes),
        other_(p.other_tpl.has() ? p.other_tpl.instantiate() : nullptr) {
    check_other();
  }
  // The spectral norm of an update of matrices with these axes, up to a factor that does not depend
  // on their sizes.
  virtual double scale_of(const Type& parameter, const MatrixAxes& axes) const = 0;
  // The matrices that the layer declares, with `block_axes` among what numbers them.
  MatrixAxes matrices_of(std::string_view path, const FanAxes& declared) const;
  MatrixAxes matrices_of(const UpdateInputs& inputs) const;  // Error if it has none.
  // The optimizer of a weight that is no matrix for this one, for the reason `why`.
  const BaseOptimizer& other_for(const Parameter& parameter, std::string_view why) const;

 private:
  void check_other() const;

  std::string name_;
  std::vector<std::string> block_axes_, excluded_axes_;
  std::unique_ptr<BaseOptimizer> other_;
};

// The product of the sizes of these axes.
double matrix_size(const Type& type, const std::vector<std::string>& axes);

// The type in which the matrices of a tensor are whole. Mesh axes that split a matrix split an axis
// that numbers matrices instead, so each device has a share of them. The number of matrices is
// padded to a multiple of the devices. If there is but one matrix, all devices have it.
Type whole_matrices(const Type& type, const MatrixAxes& axes, const Mesh& mesh);
// Pads x to the sizes of this type, and brings it to its layout; and back.
Tensor padded_to(Tensor x, Type type);
Tensor sliced_to(Tensor x, const Type& type);

}  // namespace tessera
