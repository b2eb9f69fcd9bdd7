// Runs a program.
#pragma once

#include "jinja/syntax/ast.h"
#include "jinja/values/runtime.h"

namespace aerie::jinja {

// Appends what the program gives with the variables of `scope` to `out`. The message of a failure
// says where it came about. The program outlives the runtime.
void run(Runtime& runtime, const Program& program, Scope* scope, TextBuilder& out);

}  // namespace aerie::jinja
