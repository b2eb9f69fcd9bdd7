// Layers with linear attention over the functions of one instruction set: divides the work.
#pragma once

#include "base/thread_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/delta_rule.h"

namespace aerie::kernels {

void run_short_conv(ThreadPool& pool, const CpuOps& ops, const ShortConvArgs& args);
void run_delta_rule(ThreadPool& pool, const CpuOps& ops, const DeltaRuleArgs& args);

}  // namespace aerie::kernels
