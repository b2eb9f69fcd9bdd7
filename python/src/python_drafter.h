// A drafter written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>
#include <unordered_map>

#include "aerie/drafter.h"

namespace aerie::python {

// Calls the methods of `adapter`, an object of aerie/drafter.py, under the GIL. What they raise
// becomes a status; the engine then goes on without drafts for those sequences.
class PythonDrafter final : public CustomDrafter {
 public:
  explicit PythonDrafter(nanobind::object adapter) : adapter_(std::move(adapter)) {}
  ~PythonDrafter() override;

  Status open(uint64_t sequence, std::span<const int32_t> tokens) override;
  void close(uint64_t sequence) override;
  Status propose(std::span<DraftQuery> queries) override;
  Status observe(std::span<const DraftOutcome> outcomes) override;

 private:
  nanobind::list new_tokens(uint64_t sequence, std::span<const int32_t> tokens);

  nanobind::object adapter_;
  std::unordered_map<uint64_t, size_t> known_;  // tokens that the adapter has
};

}  // namespace aerie::python
