// SamplingParams, where it is looked for in this tree.
#pragma once

#include "aerie/sampling.h"
