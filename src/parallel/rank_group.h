// The processes that run one model together, and what they say to each other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace aerie {

// Rank 0 leads: it decides what is computed. Used by one thread at a time in each process. What
// cannot be delivered ends the process with a message that names the rank which is at fault: a pass
// that lacks a part has no other end.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // For people: "rank 1 (node7, process 4711)".
  virtual std::string name(int rank) const = 0;
  // Ranks on this rank's machine, itself among them: they share its memory.
  virtual int neighbours() const = 0;
  bool leads() const { return rank() == 0; }

  // The leader: to all others, each of which receives it.
  virtual void tell(std::span<const std::byte> message) = 0;
  // The others: the leader's next message, however long it takes; empty once the leader has left.
  virtual void listen(std::vector<std::byte>& message) = 0;

  // The others: to the leader, which collects one of each, by rank; its own is empty.
  virtual void answer(std::span<const std::byte> message) = 0;
  virtual std::vector<std::vector<std::byte>> collect() = 0;

  // All at once, with parts of the same sizes: parts[rank()] comes to the others, and theirs to the
  // places of theirs.
  virtual void all_gather(std::span<const std::span<std::byte>> parts) = 0;
};

}  // namespace aerie
