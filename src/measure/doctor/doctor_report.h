// What `aerie doctor` prints.
#pragma once

#include <string>
#include <vector>

#include "measure/doctor/diagnosis.h"

namespace aerie::measure {

struct Version {
  std::string name;
  std::string version;
};

// For people: what there is, then a line for each finding.
std::string to_text(const Diagnosis& diagnosis, const std::vector<Version>& versions);
std::string to_json(const Diagnosis& diagnosis, const std::vector<Version>& versions);

}  // namespace aerie::measure
