// SPDX-License-Identifier: Apache-2.0
// A pipeline schedule as an SVG drawing.
#pragma once

#include <string>

#include "core/passes/pipeline/timeline.h"

namespace tessera {

// One row per stage, from time 0 at the left: each task is a box as wide as its time, with the
// number of its microbatch; later chunks are darker, and idle time is blank. The width of the
// drawing is `shown_time`, so that drawings with the same one are to one scale; 0: that of the
// timeline. Readable on light and dark backgrounds.
std::string pipeline_svg(const PipelineTimeline& timeline, double shown_time = 0.0);

}  // namespace tessera
