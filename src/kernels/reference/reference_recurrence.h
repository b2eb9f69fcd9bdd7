// Layers with linear attention, row by row.
#pragma once

#include "kernels/delta_rule.h"

namespace aerie::kernels::reference {

void short_conv(const ShortConvArgs& args);
void delta_rule(const DeltaRuleArgs& args);

}  // namespace aerie::kernels::reference
