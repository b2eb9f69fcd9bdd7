// Times for people.
#pragma once

#include <string>

namespace aerie::train {

// "2 h 05 min", "3 min 20 s", "12 s".
std::string duration_text(double seconds);

}  // namespace aerie::train
