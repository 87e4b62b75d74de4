// SPDX-License-Identifier: Apache-2.0
#include "tasks/schedules/constant.h"

namespace tessera {

template class HolderOf<BaseSchedule, ConstantSchedule::HParams>;

namespace {

const TemplateRegistrar<BaseSchedule, ConstantSchedule> kRegisterConstant;

}  // namespace

double ConstantSchedule::value(int64_t, int64_t) const { return p_.value; }

}  // namespace tessera
