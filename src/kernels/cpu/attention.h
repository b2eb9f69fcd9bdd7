// Divides attention into shares: blocks of rows that read the same keys, key/value heads, chunks.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/cpu_ops.h"

namespace aerie::kernels {

void run_attention(ThreadPool& pool, const CpuOps& ops, const AttentionArgs& args);

}  // namespace aerie::kernels
