#include "base/system/processor_quota.h"

#include <fstream>

#include "base/system/control_groups.h"

namespace aerie {
namespace {

// "100000 50000", or "max 100000".
double quota_of_version_2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : -1;
}

double quota_of_version_1(const std::string& folder) {
  double quota = 0, period = 0;
  const bool there = std::ifstream(folder + "/cpu.cfs_quota_us") >> quota &&
                     std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return there && quota > 0 && period > 0 ? quota / period : -1;
}

}  // namespace

double processor_quota(const std::string& root) {
  double least = -1;
  for (const ControlGroup& group : control_groups(root, "cpu")) {
    const double quota =
        group.version == 1 ? quota_of_version_1(group.folder) : quota_of_version_2(group.folder);
    if (quota > 0 && (least < 0 || quota < least)) least = quota;
  }
  return least;
}

}  // namespace aerie
