#include "engine/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace aerie {
namespace {

// The number in a file such as cgroup's memory.max; -1 for "max" or no such file.
int64_t read_number(const char* path) {
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

int64_t cgroup_available() {
  constexpr const char* kPaths[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
       "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
  };
  for (const auto& [limit_path, usage_path] : kPaths) {
    const int64_t limit = read_number(limit_path);
    const int64_t usage = read_number(usage_path);
    if (limit >= 0 && usage >= 0) return std::max<int64_t>(0, limit - usage);
  }
  return -1;
}

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

}  // namespace

int64_t available_memory() {
  const int64_t system = system_available();
  const int64_t cgroup = cgroup_available();
  if (system < 0) return cgroup;
  return cgroup < 0 ? system : std::min(system, cgroup);
}

Status check_memory(const std::string& name, int64_t weight_bytes, int64_t cache_bytes,
                    int64_t work_bytes, int64_t available) {
  const int64_t needed = weight_bytes + cache_bytes + work_bytes;
  if (available < 0 || needed <= available) return {};
  return {
      StatusCode::kResourceExhausted,
      fmt::format("{}: {} of weights, {} of cache and {} of working memory do not fit into the "
                  "{} that are available; take a smaller model, a smaller context or a cache of "
                  "fewer bits",
                  name, mebibytes(weight_bytes), mebibytes(cache_bytes), mebibytes(work_bytes),
                  mebibytes(available))};
}

}  // namespace aerie
