#include "hub/hub_inventory.h"

namespace aerie {}  // namespace aerie
