// What the system says of the machine and of what this process may use of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/system/topology.h"
#include "kernels/backend.h"

namespace aerie::measure {

struct Folder {
  std::string what;  // "temporary files"
  std::string path;
  int64_t free = -1;  // bytes for this user where it is, or would be made; -1: not known
};

// A device beside the processor, that computes models.
struct DeviceFacts {
  std::string name;  // as --device has it
  std::string make;
  int64_t memory = 0;
  int64_t free = 0;
  int processors = 0;
  std::string capability;  // "9.0"
};

struct MachineFacts {
  std::string processor;
  std::vector<std::string> features;  // of the processor, as the system names them
  kernels::Isa isa = kernels::Isa::kReference;
  std::vector<std::string> built;  // instruction sets of this build, the fastest first
  Topology topology;
  int threads = 0;
  std::string threads_reason;  // what their number comes from
  std::string huge_pages;      // transparent: "always", "madvise", "never"; empty: there are none
  // Bytes, -1 where nothing is known.
  int64_t memory = -1;
  int64_t free_memory = -1;
  int64_t group_memory = -1;  // what this process's groups may still take; -1: no limit
  int64_t available = -1;     // the least of that, free_memory and the process's own limits
  int64_t swap = -1;
  int64_t free_swap = -1;
  std::vector<Folder> folders;
  std::vector<DeviceFacts> devices;
  std::string no_devices;  // why there are none; empty: nobody looked
};

// `threads` 0: as many as programs take. `root` stands before the paths of /proc and /sys that are
// read, which is for tests. Folders are the caller's.
MachineFacts read_machine_facts(int threads, const std::string& root = "");

// GPUs, of which each is opened for a moment.
void read_device_facts(MachineFacts& facts);

// Its parts, of files below `root`.

// The word in brackets of the system's setting; empty if there is no such file.
std::string transparent_huge_pages(const std::string& root);
// Of the first processor.
std::vector<std::string> processor_features(const std::string& root);

// Fills in `free`.
Folder folder_facts(std::string what, std::string path);

}  // namespace aerie::measure
