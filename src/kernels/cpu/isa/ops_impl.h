// All functions of one instruction set in a table, for its ops_<isa>.cc. Included after the
// simd_<isa>.h that they are written over.
#pragma once

#include "kernels/cpu/isa/attention/long_key_impl.h"
#include "kernels/cpu/isa/kv_impl.h"
#include "kernels/cpu/isa/matmul_impl.h"
#include "kernels/cpu/isa/peak_impl.h"
#include "kernels/cpu/isa/row_ops_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

constexpr CpuOps kOps = {
    matmul,       quantize,        rms_norm,        layer_norm,       rms_norm_heads,
    add_rms_norm, activate,        soft_cap,        add_scaled,       rope,
    store_kv,     attention_chunk, attention_merge, attention_finish, top_k,
    peak,         short_conv,      delta_row,       advance_state};

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
