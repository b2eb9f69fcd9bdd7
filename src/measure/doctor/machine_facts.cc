#include "measure/doctor/machine_facts.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/processor.h"
#include "engine/placement/memory.h"
#include "kernels/device/open_device.h"

namespace aerie::measure {
namespace {

namespace fs = std::filesystem;

// In bytes.
std::map<std::string, int64_t> read_meminfo(const std::string& root) {
  std::map<std::string, int64_t> sizes;
  std::ifstream file(root + "/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    sizes[key] = kib * 1024;
  }
  return sizes;
}

int64_t size_of(const std::map<std::string, int64_t>& sizes, const char* key) {
  const auto found = sizes.find(key);
  return found == sizes.end() ? -1 : found->second;
}

}  // namespace

std::string transparent_huge_pages(const std::string& root) {
  std::ifstream file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') {
      return word.substr(1, word.size() - 2);
    }
  }
  return "";
}

std::vector<std::string> processor_features(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    std::vector<std::string> features;
    for (std::string word; words >> word;) features.push_back(word);
    return features;
  }
  return {};
}

Folder folder_facts(std::string what, std::string path) {
  Folder folder{std::move(what), std::move(path)};
  std::error_code error;
  for (fs::path at = fs::absolute(folder.path, error); !error; at = at.parent_path()) {
    std::error_code missing;
    const fs::space_info space = fs::space(at, missing);
    if (!missing) folder.free = static_cast<int64_t>(space.available);
    if (!missing || at == at.parent_path()) break;
  }
  return folder;
}

void read_device_facts(MachineFacts& facts) {
  constexpr int kMost = 64;
  for (int i = 0; i < kMost; ++i) {
    const std::string name = fmt::format("cuda:{}", i);
    const auto device = device::open(name);
    if (!device.ok()) {
      if (i == 0) facts.no_devices = device.status().message();
      return;
    }
    const device::Info info = (*device)->info();
    facts.devices.push_back({name, static_cast<const char*>(info.name), info.memory, info.free,
                             info.processors, fmt::format("{}.{}", info.major, info.minor)});
  }
}

MachineFacts read_machine_facts(int threads, const std::string& root) {
  MachineFacts facts;
  facts.processor = processor_name();
  facts.features = processor_features(root);
  facts.isa = kernels::best_isa();
  for (const kernels::Isa isa : kernels::built_isas()) {
    facts.built.emplace_back(kernels::isa_name(isa));
  }
  facts.topology = machine_topology();
  facts.threads = threads > 0 ? threads : facts.topology.threads();
  facts.threads_reason = threads > 0 ? "as asked for" : facts.topology.threads_reason();
  facts.huge_pages = transparent_huge_pages(root);
  const std::map<std::string, int64_t> sizes = read_meminfo(root);
  facts.memory = size_of(sizes, "MemTotal:");
  facts.free_memory = size_of(sizes, "MemAvailable:");
  facts.group_memory = memory_of_groups(root);
  // Version 1 has a number near the largest where there is no limit.
  if (facts.memory >= 0 && facts.group_memory > facts.memory) facts.group_memory = -1;
  facts.available = facts.free_memory;
  for (const int64_t limit : {facts.group_memory, memory_of_limits()}) {
    if (limit >= 0 && (facts.available < 0 || limit < facts.available)) facts.available = limit;
  }
  facts.swap = size_of(sizes, "SwapTotal:");
  facts.free_swap = size_of(sizes, "SwapFree:");
  return facts;
}

}  // namespace aerie::measure
