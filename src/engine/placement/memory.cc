#include "engine/placement/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "base/system/control_groups.h"

namespace aerie {
namespace {

// The number in a file such as cgroup's memory.max; -1 for "max" or no such file.
int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return -1;
  char* end = nullptr;
  const long long value = std::strtoll(word.c_str(), &end, 10);
  return end == word.c_str() ? -1 : value;
}

int64_t system_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return -1;
}

// The smaller; negative: no limit.
int64_t least(int64_t a, int64_t b) {
  if (a < 0) return b;
  return b < 0 ? a : std::min(a, b);
}

// The names of one version's files.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* file_pages;  // in memory.stat
};

int64_t left_in_group(const std::string& folder, const GroupFiles& files) {
  const int64_t limit = read_number(folder + "/" + files.limit);
  int64_t usage = read_number(folder + "/" + files.usage);
  if (limit < 0 || usage < 0) return -1;
  std::ifstream stat(folder + "/memory.stat");
  std::string key;
  int64_t bytes = 0;
  while (stat >> key >> bytes) {
    if (key == files.file_pages) usage -= std::clamp<int64_t>(bytes, 0, usage);
  }
  return std::max<int64_t>(0, limit - usage);
}

int64_t left_of(int resource, int64_t used) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return -1;
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT64_MAX) return -1;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used);
}

}  // namespace

int64_t memory_of_groups(const std::string& root) {
  constexpr GroupFiles kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file"};
  constexpr GroupFiles kV2 = {"memory.max", "memory.current", "inactive_file"};
  int64_t left = -1;
  for (const ControlGroup& group : control_groups(root, "memory")) {
    left = least(left, left_in_group(group.folder, group.version == 1 ? kV1 : kV2));
  }
  return left;
}

int64_t memory_of_limits() {
  // Pages: all of the address space, resident, shared, code, 0, data and stack.
  std::ifstream file("/proc/self/statm");
  std::array<int64_t, 6> pages = {};
  for (int64_t& one : pages) file >> one;
  if (!file) return -1;
  const int64_t page = sysconf(_SC_PAGESIZE);
  return least(left_of(RLIMIT_AS, pages[0] * page), left_of(RLIMIT_DATA, pages[5] * page));
}

int64_t available_memory() {
  return least(least(system_available(), memory_of_groups()), memory_of_limits());
}

int64_t memory_of_each(int64_t free, int processes) {
  return free >= 0 ? free / processes : free;
}

int64_t MemoryRoom::free() const {
  const int64_t now = available();
  return limit > 0 ? least(now, std::max<int64_t>(0, limit - taken)) : now;
}

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

Status check_memory(const std::string& name, const MemoryNeed& need, int64_t free,
                    std::string_view where) {
  if (free < 0 || need.all() <= free) return {};
  return resource_exhausted(
      "{}: {} of weights, {} of cache and {} of working memory do not fit into the {} {}: {} are "
      "missing; take a smaller model, a smaller context, or a cache of fewer tokens or fewer bits",
      name, mebibytes(need.weights), mebibytes(need.cache), mebibytes(need.work), mebibytes(free),
      where, mebibytes(need.all() - free));
}

}  // namespace aerie
