// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/schedules/constant.h"

#include "tasks/learner/check_number.h"

namespace tessera {

template class HolderOf<BaseSchedule, ConstantSchedule::HParams>;

namespace {

const TemplateRegistrar<BaseSchedule, ConstantSchedule> kRegisterConstant;

}  // namespace

ConstantSchedule::ConstantSchedule(const HParams& p) : p_(p) {
  check_not_negative(p.kName, "value", p.value);
}

double ConstantSchedule::value(int64_t, int64_t) const { return p_.value; }

}  // namespace tessera
