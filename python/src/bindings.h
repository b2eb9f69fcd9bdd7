// The parts of the module aerie._core.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string_view>

#include "aerie/engine.h"

namespace aerie::python {

// A grammar is of one engine alone.
struct CompiledGrammar {
  std::shared_ptr<const Grammar> grammar;
};

// UTF-8 to str; bytes that are none become U+FFFD.
nanobind::str text_of(std::string_view utf8);

void bind_requests(nanobind::module_& module);
void bind_replies(nanobind::module_& module);
void bind_engine(nanobind::module_& module);

}  // namespace aerie::python
