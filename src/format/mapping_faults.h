// Reads of mapped files that the system cannot satisfy: the file was cut short, or its disk fails.
// What would be SIGBUS, the end of the process, gives zeros here and is noted.
#pragma once

#include <cstddef>

namespace aerie {

// Watches a mapping for as long as it exists; it must go before the mapping does. Moves, does not
// copy. Any thread may read the mapping meanwhile.
//
// The first one puts a handler for SIGBUS in place, which hands on what is not of a watched mapping
// to the handler that was there. A program that sets its own afterwards has to hand on likewise.
class MappingFaults {
 public:
  MappingFaults() = default;  // watches nothing
  MappingFaults(void* begin, size_t size);
  ~MappingFaults();
  MappingFaults(MappingFaults&& other) noexcept;
  MappingFaults& operator=(MappingFaults&& other) noexcept;

  // Whether a read failed: from that page on the mapping has become zeros.
  bool any() const;

  struct Entry;

 private:
  Entry* entry_ = nullptr;
};

}  // namespace aerie
